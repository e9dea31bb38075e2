#include "runtime/trial/comparison.hpp"

#include "base/json.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {

namespace {

constexpr std::int64_t tokens_of_tile = 256;

/// NaN compares false with everything: it must win.
bool is_worse(double error, double than) { return !(error <= than) && !std::isnan(than); }

Tolerance coarser(const Tolerance& a, const Tolerance& b) {
  return {.largest = std::max(a.largest, b.largest),
          .mean = std::max(a.mean, b.mean),
          .absolute = std::max(a.absolute, b.absolute)};
}

/// In units of `scale`, which is that of a tensor of zeros, too.
double in_units(double value, double scale) { return scale > 0 ? value / scale : value; }

/// JSON has no NaN, and no infinity.
double number_of(const Json& json) { return json.is_null() ? NAN : json.get<double>(); }

}  // namespace

double Comparison::Tile::mean_error(double of_tensor) const {
  if (count == 0) {
    return 0;
  }
  const auto n = static_cast<double>(count);
  const double scale = std::max(std::sqrt(values / n), of_tensor);
  const double by_chance = 1 + 3 / std::sqrt(2 * n);
  return in_units(std::sqrt(errors / n) / by_chance, scale);
}

void Comparison::compare(const std::string& tensor, const Compared& of, const TokenSet& tokens,
                         HeadRange heads, const Expected& expected, const Expected& before) {
  const Buffer& buffer = of.memory.buffer(of.buffer);
  const Rows rows = of.memory.all(of.buffer);
  Extreme& extreme = extremes_[tensor];
  extreme.limit = coarser(extreme.limit, of.limit);
  extreme.rank = of.rank.value;
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      if (i % tokens_of_tile == 0) {
        const std::int64_t last = std::min(i + tokens_of_tile, range.count) - 1;
        for (std::int64_t b = 0; b < rows.batch; ++b) {
          for (int h = heads.begin; h < heads.end; ++h) {
            extreme.tiles.push_back(
                {.batch = b, .first = range.at(i), .last = range.at(last), .head = h});
          }
        }
      }
      auto tile = extreme.tiles.end() - rows.batch * heads.count();
      const std::int64_t row = buffer.tile.position_of(range.at(i));
      for (std::int64_t b = 0; b < rows.batch; ++b) {
        for (int h = heads.begin; h < heads.end; ++h, ++tile) {
          const std::int64_t cell =
              (row * rows.batch + b) * rows.heads + h - buffer.head_range.begin;
          for (int d = 0; d < rows.width; ++d) {
            const double wanted = expected(range.at(i), b, h, d);
            const double got = load(rows.dtype, rows.data, cell * rows.width + d);
            ++extreme.compared;
            if (std::isinf(wanted) && wanted == got) {
              continue;  // the lse of a query that sees no key
            }
            const double value = std::abs(wanted - (before ? before(range.at(i), b, h, d) : 0));
            // A change is small beside what is stored: the roundings of that (of a constant, a
            // product and a sum) are none of it.
            const double rounding = before ? 3 * unit_roundoff(rows.dtype) * std::abs(wanted) : 0;
            const double difference = std::abs(wanted - got);
            const double error = difference <= rounding ? 0 : difference;
            extreme.scale = std::max(extreme.scale, value);
            if (is_worse(error, extreme.error)) {
              extreme.error = error;
              extreme.worst = {.batch = b,
                               .token = range.at(i),
                               .head = h,
                               .dim = d,
                               .got = got,
                               .wanted = wanted};
            }
            tile->errors += error * error;
            tile->values += value * value;
            ++tile->count;
          }
        }
      }
    }
  }
}

std::string TensorCheck::wrong() const {
  if (!(error <= limit.largest)) {
    return worst;
  }
  return mean_error <= limit.mean ? ""
                                  : fmt::format("{}: off by {:.2g} of what is expected, on average",
                                                worst_tile, mean_error);
}

std::map<std::string, double> Comparison::means(Transport& transport) const {
  Json mine = Json::object();
  for (const auto& [tensor, e] : extremes_) {
    double values = 0;
    std::int64_t count = 0;
    for (const Tile& tile : e.tiles) {
      values += tile.values;
      count += tile.count;
    }
    mine[tensor] = {{"values", values}, {"count", count}};
  }
  std::map<std::string, std::pair<double, double>> sums;
  for (const std::string& text : transport.all_gather_text(mine.dump())) {
    const Json theirs = parse_json(text, "a rank's comparison");
    for (const auto& [tensor, e] : theirs.items()) {
      sums[tensor].first += number_of(e["values"]);
      sums[tensor].second += e["count"].get<double>();
    }
  }
  std::map<std::string, double> means;
  for (const auto& [tensor, sum] : sums) {
    means[tensor] = sum.second > 0 ? std::sqrt(sum.first / sum.second) : 0;
  }
  return means;
}

CheckReport Comparison::report(Transport& transport, double part) const {
  const std::map<std::string, double> means = this->means(transport);
  Json mine = Json::object();
  for (const auto& [tensor, e] : extremes_) {
    const Worst& w = e.worst;
    Json& said = mine[tensor];
    said = {{"error", e.error},
            {"mean_error", 0.0},
            {"scale", e.scale},
            {"compared", e.compared},
            {"limit", e.limit.largest},
            {"mean_limit", e.limit.mean},
            {"absolute_limit", e.limit.absolute},
            {"worst",
             fmt::format("rank {}, batch {}, token {}, head {}, dim {}: {:.6g} instead of {:.6g}",
                         e.rank, w.batch, w.token, w.head, w.dim, w.got, w.wanted)},
            {"worst_tile", ""}};
    double worst = 0;
    for (const Tile& tile : e.tiles) {
      if (const double error = tile.mean_error(means.at(tensor)); is_worse(error, worst)) {
        worst = error;
        said["mean_error"] = error;
        said["worst_tile"] = fmt::format("rank {}, batch {}, tokens {} to {}, head {}", e.rank,
                                         tile.batch, tile.first, tile.last, tile.head);
      }
    }
  }
  CheckReport report{.tensors = {}, .part = part};
  const std::vector<std::string> texts = transport.all_gather_text(mine.dump());
  if (transport.rank().value != 0) {
    return report;
  }
  std::map<std::string, TensorCheck> all;
  for (const std::string& text : texts) {
    const Json theirs = parse_json(text, "a rank's comparison");
    for (const auto& [tensor, e] : theirs.items()) {
      TensorCheck& sum = all[tensor];
      sum.limit = coarser(sum.limit, {.largest = number_of(e["limit"]),
                                      .mean = number_of(e["mean_limit"]),
                                      .absolute = number_of(e["absolute_limit"])});
      if (const double error = number_of(e["error"]); is_worse(error, sum.error)) {
        sum.error = error;
        sum.worst = e["worst"].get<std::string>();
      }
      if (const double error = number_of(e["mean_error"]); is_worse(error, sum.mean_error)) {
        sum.mean_error = error;
        sum.worst_tile = e["worst_tile"].get<std::string>();
      }
      sum.scale = std::max(sum.scale, number_of(e["scale"]));
      sum.compared += e["compared"].get<std::int64_t>();
    }
  }
  for (auto& [tensor, e] : all) {
    e.tensor = tensor;
    e.error = in_units(e.error, e.scale);
    e.limit.largest += in_units(e.limit.absolute, e.scale);
    e.limit.mean += in_units(e.limit.absolute, means.at(tensor));
    report.tensors.push_back(std::move(e));
  }
  return report;
}

bool CheckReport::passed() const {
  return std::ranges::all_of(tensors, [](const TensorCheck& t) { return t.passed(); });
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return std::ldexp(1.0, -24);
    case DType::fp16:
      return std::ldexp(1.0, -11);
    case DType::bf16:
      return std::ldexp(1.0, -8);
  }
  throw InternalError("unknown dtype");
}

double coarsest_roundoff(const Schedule& schedule, const StoredProgram& program) {
  double u = unit_roundoff(schedule.contract.requested.dtype);
  for (const Buffer& buffer : program.buffers) {
    u = std::max(u, unit_roundoff(buffer.dtype));
  }
  return u;
}

}  // namespace spp::runtime
