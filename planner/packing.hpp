// Lengths of packed documents that nobody knows one by one: drawn from a distribution until they
// fill the sequence, the same ones for the same seed on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace spp {

/// How long documents are.
class LengthDistribution {
 public:
  /// The logarithm of a length is normal: `median` in tokens, `sigma` of the natural logarithm.
  /// Lengths above `most` are drawn again.
  static LengthDistribution lognormal(double median, double sigma, std::int64_t most);
  /// These lengths, each as often as its weight over the sum of all says.
  static LengthDistribution histogram(std::vector<std::int64_t> lengths,
                                      const std::vector<double>& weights);

  /// At least 1 token.
  [[nodiscard]] std::int64_t draw(std::mt19937_64& random) const;
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  /// "lognormal:median=2K,sigma=1.2,max=128K,seed=1" (max: `seq` if not given; seed: 0), or
  /// "histogram:FILE", whose lines are a length and its weight ("2K 0.3"; what follows # is a
  /// remark), "histogram:FILE,seed=1". Throws InputError(where).
  static LengthDistribution parse(std::string_view text, std::int64_t seq, std::string_view where);
  /// Whether parse() is meant: the text begins as one of the two.
  static bool is_meant(std::string_view text);
  /// The part of `text` that names a histogram's file; "" if none does.
  static std::string_view file_of(std::string_view text);

 private:
  void read_parameters(std::string_view parameters, std::string_view where);
  void read_histogram(const std::string& file, std::string_view where);

  double log_median_ = 0;
  double sigma_ = 0;
  std::int64_t most_ = 0;
  std::vector<std::int64_t> lengths_;  // of a histogram
  std::vector<double> up_to_;          // by length: weight of it and all before, over all
  std::uint64_t seed_ = 0;
};

/// Documents that fill a sequence; the last one is cut.
struct PackedSequence {
  std::vector<std::int64_t> ends;  // where each ends, rising up to the sequence's length
  /// Attention that other sequences of the distribution take, over that of this one: of 15 the
  /// second least and the second most.
  double least = 1, most = 1;
};

/// Of 15 sequences drawn the one with the median attention (sum of squared lengths). Throws
/// InputError(where) if it takes more than 200,000 documents to fill one.
PackedSequence typical_sequence(const LengthDistribution& lengths, std::int64_t seq,
                                std::string_view where);

}  // namespace spp
