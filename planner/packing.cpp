#include "planner/packing.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <sstream>
#include <string>

namespace spp {
namespace {

constexpr std::string_view lognormal_word = "lognormal:";
constexpr std::string_view histogram_word = "histogram:";
constexpr std::string_view seed_word = ",seed=";  // behind a histogram's file
constexpr double most_sigma = 5;
constexpr std::size_t most_documents = 200'000;
constexpr double most_weight = 1e15;  // sums stay finite

/// In [0, 1). Not std::uniform_real_distribution, whose numbers differ between libraries.
double uniform(std::mt19937_64& random) {
  constexpr int mantissa = 53;
  return std::ldexp(static_cast<double>(random() >> (64 - mantissa)), -mantissa);
}

/// Box and Muller: of the two the first.
double normal(std::mt19937_64& random) {
  const double radius = std::sqrt(-2 * std::log1p(-uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

/// Attention under a full mask; causal masks halve it for all alike.
double pairs_of(const std::vector<std::int64_t>& ends) {
  double pairs = 0;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    pairs += std::pow(static_cast<double>(end - begin), 2);
    begin = end;
  }
  return pairs;
}

std::vector<std::int64_t> filled(const LengthDistribution& lengths, std::int64_t seq,
                                 std::mt19937_64& random, std::string_view where) {
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0; end < seq;) {
    if (ends.size() == most_documents) {
      throw InputError(where, fmt::format("more than {} documents in {} tokens: shorter sequences "
                                          "or longer documents can be planned",
                                          most_documents, seq));
    }
    end = std::min(seq, end + lengths.draw(random));
    ends.push_back(end);
  }
  return ends;
}

}  // namespace

LengthDistribution LengthDistribution::lognormal(double median, double sigma, std::int64_t most) {
  LengthDistribution made;
  made.log_median_ = std::log(median);
  made.sigma_ = sigma;
  made.most_ = most;
  return made;
}

LengthDistribution LengthDistribution::histogram(std::vector<std::int64_t> lengths,
                                                 const std::vector<double>& weights) {
  ensure(!lengths.empty() && lengths.size() == weights.size(), "a weight for each length");
  LengthDistribution made;
  made.lengths_ = std::move(lengths);
  double sum = 0;
  for (const double weight : weights) {
    sum += weight;
    made.up_to_.push_back(sum);
  }
  for (double& part : made.up_to_) {
    part /= sum;
  }
  return made;
}

std::int64_t LengthDistribution::draw(std::mt19937_64& random) const {
  if (!lengths_.empty()) {
    const auto at = std::ranges::upper_bound(up_to_, uniform(random));
    const auto index = std::min<std::ptrdiff_t>(at - up_to_.begin(), std::ssize(lengths_) - 1);
    return lengths_[static_cast<std::size_t>(index)];
  }
  for (;;) {  // parse() refuses what is nearly always too long
    const double length = std::round(std::exp(log_median_ + sigma_ * normal(random)));
    if (length <= static_cast<double>(most_)) {
      return std::max<std::int64_t>(1, std::llround(length));
    }
  }
}

bool LengthDistribution::is_meant(std::string_view text) {
  return text.starts_with(lognormal_word) || text.starts_with(histogram_word);
}

std::string_view LengthDistribution::file_of(std::string_view text) {
  return text.starts_with(histogram_word)
             ? text.substr(0, text.rfind(seed_word)).substr(histogram_word.size())
             : "";
}

LengthDistribution LengthDistribution::parse(std::string_view text, std::int64_t seq,
                                             std::string_view where) {
  LengthDistribution made;
  made.most_ = seq;
  if (text.starts_with(lognormal_word)) {
    made.read_parameters(text.substr(lognormal_word.size()), where);
  } else {
    ensure(text.starts_with(histogram_word), "a distribution's word");
    const std::string file(file_of(text));
    const std::string_view behind = text.substr(histogram_word.size() + file.size());
    if (!behind.empty()) {
      made.seed_ = static_cast<std::uint64_t>(
          parse_int(behind.substr(seed_word.size()), where, 0, INT64_MAX));
    }
    made.read_histogram(file, where);
  }
  return made;
}

void LengthDistribution::read_parameters(std::string_view parameters, std::string_view where) {
  double median = 0;
  bool deviation = false;
  std::set<std::string_view> given;
  for (const std::string_view parameter : split(parameters, ',')) {
    const std::size_t at = parameter.find('=');
    const std::string_view name = parameter.substr(0, at);
    const std::string_view value = at == std::string_view::npos ? "" : parameter.substr(at + 1);
    if (!given.insert(name).second) {
      throw InputError(where, fmt::format("'{}' is given 2 times", name));
    }
    if (name == "median") {
      median = static_cast<double>(parse_tokens(value, where));
    } else if (name == "max") {
      most_ = parse_tokens(value, where);
    } else if (name == "sigma") {
      sigma_ = parse_double(value, where);
      deviation = true;
    } else if (name == "seed") {
      seed_ = static_cast<std::uint64_t>(parse_int(value, where, 0, INT64_MAX));
    } else {
      throw InputError(where,
                       fmt::format("'{}' is no parameter of lognormal (median=2K, sigma=1.2, "
                                   "max=128K, seed=1)",
                                   name));
    }
  }
  if (median == 0 || !deviation) {
    throw InputError(where, fmt::format("lognormal needs {}=…", median == 0 ? "median" : "sigma"));
  }
  if (sigma_ < 0 || sigma_ > most_sigma) {
    throw InputError(where, fmt::format("sigma {} (of the natural logarithm of lengths) is not "
                                        "between 0 and {}",
                                        sigma_, most_sigma));
  }
  log_median_ = std::log(median);
  if (static_cast<double>(most_) < median) {
    throw InputError(where, fmt::format("max {} is below the median {}", most_, median));
  }
}

void LengthDistribution::read_histogram(const std::string& file, std::string_view where) {
  std::istringstream text(read_text_file(file, where));
  std::vector<std::int64_t> lengths;
  std::vector<double> weights;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const std::string here = fmt::format("{}: {}, line {}", where, file, number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string length;
    std::string weight;
    std::string more;
    if (!(words >> length)) {
      continue;
    }
    if (!(words >> weight) || words >> more) {
      throw InputError(here,
                       fmt::format("'{}' is not a length and its weight, such as 2K 0.3", line));
    }
    lengths.push_back(parse_tokens(length, here));
    weights.push_back(parse_double(weight, here));
    if (!(weights.back() > 0 && weights.back() <= most_weight)) {
      throw InputError(here,
                       fmt::format("weight {} is not above 0, up to {}", weight, most_weight));
    }
  }
  if (lengths.empty()) {
    throw InputError(where, fmt::format("{} has no length", file));
  }
  const std::uint64_t seed = seed_;
  *this = histogram(std::move(lengths), weights);
  seed_ = seed;
}

PackedSequence typical_sequence(const LengthDistribution& lengths, std::int64_t seq,
                                std::string_view where) {
  constexpr std::size_t drawn = 15;
  std::mt19937_64 random(lengths.seed());
  struct Sample {
    double pairs = 0;
    std::vector<std::int64_t> ends;
  };
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < drawn; ++i) {
    std::vector<std::int64_t> ends = filled(lengths, seq, random, where);
    samples.push_back({.pairs = pairs_of(ends), .ends = std::move(ends)});
  }
  std::ranges::stable_sort(samples, {}, &Sample::pairs);
  const double median = samples[drawn / 2].pairs;
  return {.ends = std::move(samples[drawn / 2].ends),
          .least = samples[1].pairs / median,
          .most = samples[drawn - 2].pairs / median};
}

}  // namespace spp
