// The model's answer to every point of a corpus file.
#pragma once

#include "machine/linear_cost.hpp"
#include "machine/stack.hpp"
#include "planner/plan.hpp"
#include "regress/corpus.hpp"
#include "regress/machine.hpp"
#include "regress/score.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace spp::regress {

/// Predicts files one by one; one of these a thread.
class Predictor {
 public:
  explicit Predictor(Catalog catalog) : catalog_(std::move(catalog)) {}

  /// One prediction a point, in order. What cannot be predicted has a reason. InputError: the file
  /// names a GPU, link or stack that nobody knows.
  std::vector<PointPrediction> predict(const CorpusFile& file);

  /// What was filled in for the points of the last file; each value, with how many points it is of
  /// unless of all.
  [[nodiscard]] const std::vector<Assumption>& assumptions() const { return assumptions_; }

 private:
  struct KnownBy {
    std::string word, stack;
    int until = 0;
  };
  const KnownBy* known_by(const std::string& said, int year);

  PointPrediction predict(const CorpusFile& file, const Point& point);
  PointPrediction attention(const Point& point, const sim::Cluster& cluster,
                            const StackSpec& stack);
  PointPrediction training(const CorpusFile& file, const Point& point, const sim::Cluster& cluster,
                           const StackSpec& stack);
  PointPrediction kernel(const CorpusFile& file, const Point& point, const sim::Cluster& cluster,
                         const StackSpec& stack);
  PointPrediction kernel_of_op(const Point& point, const GpuSpec& gpu, const StackSpec& stack);
  PointPrediction inference(const Point& point, const sim::Cluster& cluster,
                            const StackSpec& stack);
  PointPrediction collective(const Point& point, const sim::Cluster& cluster,
                             const StackSpec& stack) const;
  PointPrediction expert_exchange(const Point& point, const sim::Cluster& cluster,
                                  const StackSpec& stack) const;
  std::string recognised(const CorpusFile& file, const Point& point);
  StackSpec::Counting counting_of(const CorpusFile& file, const Point& point);
  void assume(const std::string& what, std::string value);
  /// Relative, of documents whose lengths the source does not give, which are assumed then.
  double spread_of_packing(const Point& point);
  const sim::Cluster& cluster_of(const CorpusFile& file, const Point& point);
  const StackSpec& stack_of(const std::string& name, std::string_view where);
  /// The stack as a step of the point was run.
  const StackSpec& as_run(const StackSpec& stack, const CorpusFile& file, const Point& point);

  Catalog catalog_;
  struct Composed {
    std::unique_ptr<sim::Cluster> cluster;
    std::vector<Assumption> assumptions;  // of its machine
  };
  std::map<std::string, Composed> clusters_;
  std::map<std::string, StackSpec> stacks_;
  std::vector<KnownBy> words_;           // by which stacks are recognised
  std::vector<Assumption> assumptions_;  // of a point, while it is predicted
};

}  // namespace spp::regress
