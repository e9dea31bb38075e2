#include "runtime/trial/comparison.hpp"

#include "base/json.hpp"
#include "runtime/kernels/convert.hpp"

#include <algorithm>
#include <cmath>

namespace spp::runtime {

void Comparison::compare(const std::string& tensor, const ComparedBuffer& of, Rank rank,
                         const TokenSet& tokens, HeadRange heads, const Expected& expected) {
  const Buffer& buffer = of.memory.buffer(of.buffer);
  const Rows rows = of.memory.all(of.buffer);
  Extreme& extreme = extremes_[tensor];
  for (const TokenRange& range : tokens.ranges()) {
    for (std::int64_t i = 0; i < range.count; ++i) {
      const std::int64_t row = buffer.tile.position_of(range.at(i));
      for (std::int64_t b = 0; b < rows.batch; ++b) {
        for (int h = heads.begin; h < heads.end; ++h) {
          const std::int64_t cell =
              (row * rows.batch + b) * rows.heads + h - buffer.head_range.begin;
          for (int d = 0; d < rows.width; ++d) {
            const double wanted = expected(range.at(i), b, h, d);
            const double got = load(rows.dtype, rows.data, cell * rows.width + d);
            ++extreme.compared;
            if (std::isinf(wanted) && wanted == got) {
              continue;  // the lse of a query that sees no key
            }
            extreme.scale = std::max(extreme.scale, std::abs(wanted));
            const double error = std::abs(wanted - got);
            // NaN compares false with everything: it must win.
            if (!(error <= extreme.error) && !std::isnan(extreme.error)) {
              extreme.error = error;
              extreme.worst = {.rank = rank.value,
                               .batch = b,
                               .token = range.at(i),
                               .head = h,
                               .dim = d,
                               .got = got,
                               .wanted = wanted};
            }
          }
        }
      }
    }
  }
}

std::string Comparison::Worst::text() const {
  return fmt::format("rank {}, batch {}, token {}, head {}, dim {}: {:.6g} instead of {:.6g}", rank,
                     batch, token, head, dim, got, wanted);
}

CheckReport Comparison::report(Transport& transport, double limit, double part) const {
  Json mine = Json::object();
  for (const auto& [tensor, e] : extremes_) {
    mine[tensor] = {{"error", e.error},
                    {"scale", e.scale},
                    {"compared", e.compared},
                    {"worst", e.compared > 0 ? e.worst.text() : ""},
                    {"limit", limit}};
  }
  CheckReport report{.tensors = {}, .part = part};
  const std::vector<std::string> texts = transport.all_gather_text(mine.dump());
  if (transport.rank().value != 0) {
    return report;
  }
  struct Sum {
    double error = 0, scale = 0;
    std::int64_t compared = 0;
    std::string worst;
  };
  std::map<std::string, Sum> all;
  for (const std::string& text : texts) {
    const Json theirs = parse_json(text, "a rank's comparison");
    for (const auto& [tensor, e] : theirs.items()) {
      Sum& sum = all[tensor];
      const double error = e["error"].is_null() ? NAN : e["error"].get<double>();
      if (!(error <= sum.error)) {
        sum.error = error;
        sum.worst = e["worst"].get<std::string>();
      }
      sum.scale = std::max(sum.scale, e["scale"].get<double>());
      sum.compared += e["compared"].get<std::int64_t>();
      limit = std::max(limit, e["limit"].get<double>());
    }
  }
  for (const auto& [tensor, e] : all) {
    report.tensors.push_back({.tensor = tensor,
                              .error = e.scale > 0 ? e.error / e.scale : e.error,
                              .limit = limit,
                              .scale = e.scale,
                              .compared = e.compared,
                              .worst = e.worst});
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
  double u = unit_roundoff(schedule.requested.dtype);
  for (const Buffer& buffer : program.buffers) {
    u = std::max(u, unit_roundoff(buffer.dtype));
  }
  return u;
}

}  // namespace spp::runtime
