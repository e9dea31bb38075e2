// Inside of read_model: the attention heads of a decoder, by its config or by its class.
#pragma once

#include "base/json.hpp"
#include "transformer/model.hpp"
#include "transformer/model_read_family.hpp"

#include <string>
#include <vector>

namespace spp::model_keys {

/// Heads and their size. What the config leaves to a class that is not known, or that writes its
/// defaults into no file (`nested`), is said in Model::assumed. What is not alike in all layers
/// goes to `varying`, in words. InputError: heads that do not divide.
void read_heads(const JsonView& config, const Family& family, bool nested, Model& model,
                std::vector<std::string>& varying);

/// Heads of latent attention are as wide as it says, and each has its own K and V.
void read_latent(const JsonView& config, const Family& family, Model& model);

/// Of layers that are none of a decoder's: what the config says in so many words, for a card.
void read_said_heads(const JsonView& config, Model& model);

}  // namespace spp::model_keys
