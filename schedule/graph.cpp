#include "schedule/graph.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace spp {

std::string_view to_string(LayerFunction function) {
  constexpr std::array<std::string_view, layer_functions> names{
      "linear", "rms_norm", "layer_norm", "split_heads", "swiglu", "gelu", "add"};
  return names.at(static_cast<std::size_t>(function));
}

std::string_view to_string(GemmKind kind) {
  constexpr std::array<std::string_view, 3> names{"forward", "input_gradient", "weight_gradient"};
  return names.at(static_cast<std::size_t>(kind));
}

std::string Graph::name(TensorRef ref) const {
  const std::string word(to_string(ref.tensor));
  if (is_value(ref.tensor)) {
    return word + "." + value(ref.label).name;
  }
  return is_param(ref.tensor) ? word + "." + param(ref.label).name : word;
}

int Graph::writer_of(TensorRef ref) const {
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    if (std::ranges::find(definitions[i].writes, ref) != definitions[i].writes.end()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::vector<Use> Graph::uses_of(TensorRef ref) const {
  std::vector<Use> uses;
  int next = 0;
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    const Definition& d = definitions[i];
    if (std::ranges::find(d.reads, ref) != d.reads.end()) {
      const int count = d.function == LayerFunction::linear ? param(d.param).column_parts : 1;
      uses.push_back({.definition = static_cast<int>(i), .first = next, .count = count});
      next += count;
    }
  }
  return uses;
}

int Graph::gradient_of(int label) const {
  const std::vector<Use> uses = uses_of({Tensor::value, label});
  if (uses.size() != 1) {
    return label;
  }
  const Definition& use = definition(uses.front().definition);
  return use.function == LayerFunction::add ? gradient_of(use.writes.front().label) : label;
}

namespace {

/// How many tensors a definition reads and writes, and whether it has a parameter.
struct Form {
  std::size_t reads = 1, writes = 1;
  bool param = false;
};

Form form_of(LayerFunction function) {
  switch (function) {
    case LayerFunction::linear:
      return {.param = true};
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
      return {.writes = 2, .param = true};
    case LayerFunction::split_heads:
      return {.writes = 3};
    case LayerFunction::swiglu:
    case LayerFunction::add:
      return {.reads = 2};
    case LayerFunction::gelu:
      return {};
  }
  throw InternalError("unknown function of a layer");
}

/// Shapes of a linear layer and its parameter.
bool linear_fits(const Graph& graph, const Definition& d, const AttentionRows& attention) {
  const Param& w = graph.param(d.param);
  const TensorRef x = d.reads.front();
  const TensorRef y = d.writes.front();
  if (!is_value(y.tensor) || graph.value(y.label).parts != w.column_parts ||
      graph.value(y.label).width != w.columns) {
    return false;
  }
  return is_value(x.tensor)
             ? graph.value(x.label).parts == w.row_parts && graph.value(x.label).width == w.rows
             : x.tensor == Tensor::out && attention.head_parts % w.row_parts == 0 &&
                   attention.q_width == w.rows;
}

bool split_fits(const Graph& graph, const Definition& d, const AttentionRows& attention) {
  return is_value(d.reads.front().tensor) &&
         attention.head_parts % graph.value(d.reads.front().label).parts == 0 &&
         graph.value(d.reads.front().label).width == attention.q_width + 2 * attention.kv_width &&
         d.writes == std::vector<TensorRef>{Tensor::q, Tensor::k, Tensor::v};
}

/// Rows of everything that it reads and writes are cut and as wide as those of the first; but
/// statistics are a number or two.
bool rows_fit(const Graph& graph, const Definition& d) {
  std::vector<TensorRef> all = d.reads;
  all.push_back(d.writes.front());
  const auto alike = [&](TensorRef ref) {
    return is_value(ref.tensor) &&
           graph.value(ref.label).parts == graph.value(all.front().label).parts &&
           graph.value(ref.label).width == graph.value(all.front().label).width;
  };
  if (!is_value(all.front().tensor) || !std::ranges::all_of(all, alike)) {
    return false;
  }
  if (d.param < 0) {
    return true;
  }
  const std::int64_t numbers = d.function == LayerFunction::layer_norm ? 2 : 1;
  const Value& row = graph.value(all.front().label);
  const Param& weights = graph.param(d.param);
  const TensorRef statistics = d.writes[1];
  return row.parts == 1 && weights.row_parts == 1 && weights.columns == 1 &&
         weights.rows == numbers * row.width && is_value(statistics.tensor) &&
         graph.value(statistics.label).width == numbers && graph.value(statistics.label).parts == 1;
}

std::string flaw_of_definition(const Graph& graph, const Definition& d,
                               const AttentionRows& attention) {
  const Form form = form_of(d.function);
  const auto known = [&](TensorRef ref) {
    return !is_of_graph(ref.tensor) ||
           (ref.tensor == Tensor::value && ref.label >= 0 && ref.label < std::ssize(graph.values));
  };
  if (d.reads.size() != form.reads || d.writes.size() != form.writes ||
      form.param != (d.param >= 0) || d.param >= std::ssize(graph.params) ||
      !std::ranges::all_of(d.reads, known) || !std::ranges::all_of(d.writes, known)) {
    return "reads, writes or parameter are not those of its function";
  }
  switch (d.function) {
    case LayerFunction::linear:
      return linear_fits(graph, d, attention) ? "" : "its parameter has another shape";
    case LayerFunction::split_heads:
      return split_fits(graph, d, attention) ? "" : "a row of values becomes all q, k and v";
    case LayerFunction::rms_norm:
    case LayerFunction::layer_norm:
    case LayerFunction::swiglu:
    case LayerFunction::gelu:
    case LayerFunction::add:
      break;
  }
  return rows_fit(graph, d) ? "" : "rows of what it reads and writes are of different shapes";
}

}  // namespace

std::string flaw_of(const Graph& graph, const AttentionRows& attention) {
  std::set<TensorRef> written;
  for (std::size_t i = 0; i < graph.definitions.size(); ++i) {
    const Definition& d = graph.definitions[i];
    std::string flaw = flaw_of_definition(graph, d, attention);
    for (const TensorRef ref : flaw.empty() ? d.reads : std::vector<TensorRef>()) {
      const int writer = graph.writer_of(ref);
      if (writer >= static_cast<int>(i)) {
        flaw = fmt::format("reads {} before it is written", graph.name(ref));
      }
    }
    for (const TensorRef ref : flaw.empty() ? d.writes : std::vector<TensorRef>()) {
      if (!written.insert(ref).second) {
        flaw = fmt::format("writes {} a second time", graph.name(ref));
      }
    }
    if (!flaw.empty()) {
      return fmt::format("definition {} ({}): {}", i, to_string(d.function), flaw);
    }
  }
  return "";
}

}  // namespace spp
