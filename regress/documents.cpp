#include "regress/documents.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

namespace spp::regress {
namespace {

struct Bin {
  double begin = 0, end = 0;  // in 1024 tokens
  double weight = 0;
};

constexpr std::array bins{Bin{0, 0.25, 0.0766}, Bin{0.25, 0.5, 0.1651}, Bin{0.5, 0.75, 0.1246},
                          Bin{0.75, 1, 0.0972}, Bin{1, 1.5, 0.1324},    Bin{1.5, 2, 0.0927},
                          Bin{2, 2.5, 0.0720},  Bin{2.5, 3, 0.0519},    Bin{3, 3.5, 0.0379},
                          Bin{3.5, 4, 0.0264},  Bin{4, 5, 0.0380},      Bin{5, 6, 0.0245},
                          Bin{6, 7, 0.0145},    Bin{7, 8, 0.0097},      Bin{8, 10, 0.0122},
                          Bin{10, 15, 0.0128},  Bin{15, 20, 0.0051},    Bin{20, 64, 0.0064}};
}  // namespace

LengthDistribution usual_documents(std::int64_t seq) {
  const std::int64_t quarter = std::max<std::int64_t>(1, seq / 4);
  std::map<std::int64_t, double> weights;
  for (const Bin& bin : bins) {
    const std::int64_t length = std::llround(512 * (bin.begin + bin.end));
    weights[quarter] += bin.weight * static_cast<double>(length / quarter);
    weights[length % quarter] += bin.weight;
  }
  weights.erase(0);
  std::vector<std::int64_t> lengths;
  std::vector<double> of_each;
  for (const auto& [length, weight] : weights) {
    if (weight > 0) {
      lengths.push_back(length);
      of_each.push_back(weight);
    }
  }
  return LengthDistribution::histogram(std::move(lengths), of_each);
}

PackedSequence usual_packing(std::int64_t seq) {
  return typical_sequence(usual_documents(seq), seq, "documents");
}

double packing_spread(const PackedSequence& packed) {
  // The second least and the second most of 15 are some 1.1 standard deviations away.
  return 1.5 * std::log(packed.most / packed.least) / 2 / 1.1;
}

}  // namespace spp::regress
