#include "transformer/model_read_heads.hpp"

#include "transformer/model_read.hpp"

#include <array>
#include <optional>

namespace spp::model_keys {
namespace {

constexpr std::array<std::string_view, 4> head_counts{"num_attention_heads", "n_head", "n_heads",
                                                      "num_heads"};
constexpr std::array<std::string_view, 4> kv_counts{"num_key_value_heads", "n_kv_heads",
                                                    "num_kv_heads", "multi_query_group_num"};
constexpr std::array<std::string_view, 4> head_dims{"head_dim", "attention_head_dim", "d_kv",
                                                    "kv_channels"};
constexpr std::array<std::string_view, 2> kv_ranks{"kv_lora_rank", "attention_kv_lora_dim"};
constexpr std::array<std::string_view, 2> q_ranks{"q_lora_rank", "attention_q_lora_dim"};
constexpr std::array<std::string_view, 2> nope_dims{"qk_nope_head_dim", "attention_qk_dim"};
constexpr std::array<std::string_view, 2> rope_dims{"qk_rope_head_dim", "attention_qk_rope_dim"};
constexpr std::array<std::string_view, 2> value_dims{"v_head_dim", "attention_v_dim"};

/// A null says that the class derives it, a missing key that the class has a default.
bool left_to_class(const JsonView& config, std::string_view key) {
  return !config.value().contains(key);
}

/// What is filled in, in Model::assumed.
class Guesses {
 public:
  Guesses(const Family& family, bool nested, Model& model)
      : family_(family), unsure_(nested || family.model_type.empty()), model_(model) {}
  void by_class(std::string_view key, std::int64_t value) const {
    assume_default(fmt::format("{} {}", key, value), family_.config_class, model_);
  }
  /// `unsure`: though the class is known.
  void derived(std::string_view key, std::int64_t value, std::string_view rule,
               bool unsure = false) const {
    if (unsure || unsure_) {
      model_.assumed.push_back(fmt::format("{} {}: {} (not in the config)", key, value, rule));
    }
  }

 private:
  const Family& family_;
  bool unsure_;
  Model& model_;
};

void read_kv_heads(const JsonView& config, const Family& family, const Guesses& guesses,
                   Model& model, std::vector<std::string>& varying) {
  const auto kv = find_any(config, kv_counts);
  const auto falcons = config.find("new_decoder_architecture");
  const bool one = flag(config, "multi_query");
  // Falcon's first layers have one KV head, whatever num_kv_heads says.
  if (one && (!kv || (falcons && !falcons->boolean()))) {
    model.kv_heads = 1;
    return;
  }
  if (kv) {
    const PerLayer number = per_layer(*kv, most_heads, model.layers);
    model.kv_heads = static_cast<int>(number.value);
    if (number.varies()) {
      varying.push_back(fmt::format("{} key/value heads", number.range()));
    } else if (varying.empty() && model.q_heads % model.kv_heads != 0) {
      kv->fail(fmt::format("{} key/value heads do not divide {} attention heads", model.kv_heads,
                           model.q_heads));
    }
    return;
  }
  const bool has_default = family.kv_heads > 0 && left_to_class(config, kv_counts.front());
  if (has_default && model.q_heads % family.kv_heads == 0) {
    model.kv_heads = family.kv_heads;
    guesses.by_class(kv_counts.front(), model.kv_heads);
    return;
  }
  model.kv_heads = model.q_heads;
  if (!find_any(config, kv_ranks)) {
    guesses.derived(kv_counts.front(), model.kv_heads, "one for each head", has_default);
  }
}

void read_head_dim(const JsonView& config, const Family& family, const JsonView& heads,
                   const Guesses& guesses, Model& model) {
  const auto part_of_latent = [&](Names names) {  // 0: no latent attention
    const auto dim = find_any(config, names);
    return dim ? dim->integer(0, most_head_dim) : 0;
  };
  const std::int64_t rope = part_of_latent(rope_dims);
  const std::int64_t nope = part_of_latent(nope_dims);
  if (const auto dim = find_any(config, head_dims)) {
    model.head_dim = static_cast<int>(dim->integer(1, most_head_dim));
  } else if (family.head_dim > 0 && left_to_class(config, head_dims.front())) {
    model.head_dim = family.head_dim;
    guesses.by_class(head_dims.front(), model.head_dim);
  } else if (rope > 0 && nope > 0) {
    model.head_dim = static_cast<int>(rope + nope);
  } else if (model.hidden % model.q_heads != 0) {
    heads.fail(fmt::format("{} heads do not divide the hidden size {}, and there is no head_dim",
                           model.q_heads, model.hidden));
  } else {
    model.head_dim = static_cast<int>(model.hidden / model.q_heads);
    guesses.derived(head_dims.front(), model.head_dim, "hidden size / heads");
  }
}

}  // namespace

void read_heads(const JsonView& config, const Family& family, bool nested, Model& model,
                std::vector<std::string>& varying) {
  const Guesses guesses(family, nested, model);
  const auto said = find_any(config, head_counts);
  if (!said && family.q_heads > 0) {
    model.q_heads = family.q_heads;
    guesses.by_class(head_counts.front(), model.q_heads);
  } else {
    const PerLayer q = per_layer(need_any(config, head_counts), most_heads, model.layers);
    model.q_heads = static_cast<int>(q.value);
    if (q.varies()) {
      varying.push_back(fmt::format("{} heads", q.range()));
    }
  }
  read_kv_heads(config, family, guesses, model, varying);
  read_head_dim(config, family, said ? *said : config, guesses, model);
}

void read_latent(const JsonView& config, const Family& family, Model& model) {
  const auto rank = find_any(config, kv_ranks);
  if (!rank) {
    if (family.latents) {
      need_any(config, kv_ranks);
    }
    return;
  }
  Latent& latent = model.latent;
  const auto dim = [&](Names names) {
    return static_cast<int>(need_any(config, names).integer(1, most_head_dim));
  };
  latent.kv_rank = rank->integer(1, most_width);
  if (const auto q = find_any(config, q_ranks)) {
    latent.q_rank = q->integer(0, most_width);
  } else if (family.q_rank > 0 && left_to_class(config, q_ranks.front())) {
    latent.q_rank = family.q_rank;
    assume_default(fmt::format("{} {}", q_ranks.front(), latent.q_rank), family.config_class,
                   model);
  }
  latent.nope_dim = dim(nope_dims);
  latent.rope_dim = dim(rope_dims);
  latent.value_dim = find_any(config, value_dims) ? dim(value_dims) : latent.nope_dim;
  model.head_dim = latent.nope_dim + latent.rope_dim;
  model.kv_heads = model.q_heads;
}

void read_said_heads(const JsonView& config, Model& model) {
  const auto number = [&](Names names, std::int64_t max) {
    const auto said = find_any(config, names);
    return said && said->value().is_number() ? static_cast<int>(said->integer(0, max)) : 0;
  };
  model.q_heads = number(head_counts, most_heads);
  model.kv_heads = number(kv_counts, most_heads);
  model.head_dim = number(head_dims, most_head_dim);
}

}  // namespace spp::model_keys
