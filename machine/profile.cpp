#include "machine/profile.hpp"

#include "base/error.hpp"
#include "base/parse.hpp"
#include "machine/attention_table.hpp"
#include "machine/machine_json.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <set>
#include <utility>

namespace spp {
namespace {

/// Sizes beyond which an entry is a typing error.
constexpr std::int64_t most_heads = 4096;
constexpr std::int64_t most_head_dim = 2048;
constexpr std::int64_t most_batch = 65536;
constexpr std::int64_t most_samples = 1'000'000'000;

std::string text_at(const JsonView& document, std::string_view key) {
  const JsonView view = document.at(key);
  std::string text = view.string();
  if (text.empty()) {
    view.fail("is empty");
  }
  return text;
}

/// "2025-01-31", and whatever follows.
std::string date_at(const JsonView& document, std::string_view key) {
  std::string text = text_at(document, key);
  constexpr std::string_view form = "0000-00-00";
  bool good = text.size() >= form.size();
  for (std::size_t i = 0; good && i < form.size(); ++i) {
    good = form[i] == '-' ? text[i] == '-' : std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  }
  if (good) {
    const auto number = [&](std::size_t at, std::size_t digits) {
      return std::stoi(text.substr(at, digits));
    };
    using std::chrono::day, std::chrono::month, std::chrono::year;
    good =
        std::chrono::year_month_day(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                                    day(static_cast<unsigned>(number(8, 2))))
            .ok();
  }
  if (!good) {
    document.at(key).fail(fmt::format("'{}' does not begin with a date YYYY-MM-DD", text));
  }
  return text;
}

Seconds time_at(const JsonView& document, std::string_view key) {
  const JsonView view = document.at(key);
  return measured_from(view.number(), "s", view.where());
}

TokenSet tokens_at(const JsonView& document, std::string_view key) {
  const JsonView view = document.at(key);
  TokenSet tokens = parse_token_set(view.string(), view.where());
  if (tokens.empty()) {
    view.fail("has no token");
  }
  return tokens;
}

MeasuredAttention read_measured(const JsonView& view) {
  view.allow_only({"kernels", "phase", "dtype", "batch", "q_heads", "kv_heads", "head_dim",
                   "value_dim", "mask", "q_tokens", "k_tokens", "median_s", "spread", "n", "note"});
  const auto count = [&](std::string_view key, std::int64_t most) {
    return view.at(key).integer(1, most);
  };
  const auto word = [&](std::string_view key, auto parse) {
    const JsonView member = view.at(key);
    return parse(member.string(), member.where());
  };
  MeasuredAttention m;
  m.kernels = text_at(view, "kernels");
  m.phase = word("phase", parse_phase);
  m.dtype = word("dtype", parse_dtype);
  m.batch = count("batch", most_batch);
  m.q_heads = static_cast<int>(count("q_heads", most_heads));
  m.kv_heads = static_cast<int>(count("kv_heads", most_heads));
  if (m.q_heads % m.kv_heads != 0) {
    view.at("kv_heads").fail(fmt::format("{} does not divide q_heads {}", m.kv_heads, m.q_heads));
  }
  m.head_dim = static_cast<int>(count("head_dim", most_head_dim));
  if (view.find("value_dim")) {
    m.value_dim = static_cast<int>(count("value_dim", most_head_dim));
  }
  m.mask = word("mask", parse_mask);
  m.q = tokens_at(view, "q_tokens");
  m.k = tokens_at(view, "k_tokens");
  m.median = time_at(view, "median_s");
  m.spread = view.at("spread").number();
  if (m.spread < 0 || m.spread > 2) {
    view.at("spread").fail(fmt::format("{} is not a relative spread (0 to 2)", m.spread));
  }
  m.samples = count("n", most_samples);
  return m;
}

/// No measurement is faster than the peak: then the peak is wrong, or the clock.
void check_peak(const JsonView& view, const MeasuredAttention& m, const GpuSpec& gpu) {
  const Seconds least = attention_flops_of(shape_of(m)) / matrix_rate(gpu, m.dtype, view.where());
  if (m.median < least) {
    view.at("median_s")
        .fail(fmt::format("{:.4g} s is faster than the peak rate of '{}' allows ({:.4g} s)",
                          m.median.count(), gpu.name, least.count()));
  }
}

std::vector<MeasuredAttention> read_attention_list(const JsonView& list, const GpuSpec& gpu) {
  std::vector<MeasuredAttention> measured;
  std::set<std::pair<std::string, AttentionKey>> seen;
  for (const JsonView& view : list.elements()) {
    MeasuredAttention m = read_measured(view);
    check_peak(view, m, gpu);
    if (!seen.emplace(m.kernels, key_of(shape_of(m))).second) {
      view.fail("is the same kernel and block as an entry before");
    }
    measured.push_back(std::move(m));
  }
  return measured;
}

}  // namespace

std::string Profile::told(std::string_view key) const {
  const auto at = std::ranges::find(environment, key, &std::pair<std::string, std::string>::first);
  return at == environment.end() ? "" : at->second;
}

Profile read_profile(const JsonView& document) {
  expect_format(document, "sp-plan/profile");
  document.allow_only({"format", "format_version", "tool_version", "name", "date", "environment",
                       "nodes", "machine", "attention", "pace", "other", "samples", "note"});
  Profile p;
  p.later = document.later();
  p.name = text_at(document, "name");
  p.date = date_at(document, "date");
  p.tool_version = text_at(document, "tool_version");
  const JsonView environment = document.at("environment");
  if (!environment.value().is_object()) {
    environment.fail("is not an object of names and strings");
  }
  for (const auto& [key, view] : environment.members()) {
    p.environment.emplace_back(key, view.string());
  }
  p.nodes = static_cast<int>(read_count(document.at("nodes"), most_gpus).value);
  p.machine = read_whole_machine(document.at("machine"));
  if (const auto attention = document.find("attention")) {
    p.machine.gpu.measured = read_attention_list(*attention, p.machine.gpu);
  }
  if (const auto pace = document.find("pace")) {
    p.machine.gpu.pace = read_measured(*pace);
    check_peak(*pace, *p.machine.gpu.pace, p.machine.gpu);
  }
  for (const std::string_view free : {"other", "samples"}) {
    if (const auto view = document.find(free); view && !view->value().is_structured()) {
      view->fail("is neither a list nor an object");
    }
  }
  return p;
}

Profile read_profile(const std::filesystem::path& file) {
  const Json json = read_json(file);
  return read_profile(JsonView(json, file.string()));
}

MachineSpec calibrated(MachineSpec machine, const Profile& profile, std::string_view where) {
  if (machine.gpu.name != profile.machine.gpu.name) {
    throw InputError(where,
                     fmt::format("'{}' was measured on GPU '{}', but {} has '{}'", profile.name,
                                 profile.machine.gpu.name, machine.name, machine.gpu.name));
  }
  const std::string intra = machine.gpu.intra;
  const std::string pcie = machine.gpu.pcie;
  const Bandwidth slot = machine.gpu.slot;
  machine.gpu = profile.machine.gpu;
  machine.gpu.intra = intra;
  machine.gpu.pcie = pcie;
  machine.gpu.slot = slot;
  const auto measured_links = [&](TransportSpec& transport) {
    const MachineSpec& from = profile.machine;
    if (transport.name == from.intra.name) {
      transport = from.intra;
    } else if (from.inter && transport.name == from.inter->transport.name) {
      transport = from.inter->transport;
    }
  };
  measured_links(machine.intra);
  if (machine.inter) {
    measured_links(machine.inter->transport);
  }
  check(machine, where);
  return machine;
}

}  // namespace spp
