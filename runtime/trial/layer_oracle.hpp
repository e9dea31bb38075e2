// What a schedule with a graph must compute: the graph, evaluated in fp64 on one device, whole,
// from the same inputs. Obvious and slow.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/trial/inputs.hpp"
#include "schedule/schedule.hpp"

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace spp::runtime {

/// Tensors whole, of all micro-batches' tokens that are no padding: values and their gradients
/// [tokens, batch, width], q, out and lse [tokens, batch, heads, …], parameters and their gradients
/// [rows, columns]. Keys and values begin with those of tokens that are cached, which have nothing
/// else.
class LayerOracle {
 public:
  /// The schedule needs a graph. Of a backward and a step gradients, too; of a step the parameters
  /// and what an optimizer keeps of them, as they are after the graph's updates.
  LayerOracle(const Schedule& schedule, const InputData& data, const Poll& poll);

  [[nodiscard]] const std::vector<double>& at(TensorRef ref) const { return tensors_.at(ref); }
  [[nodiscard]] bool has(TensorRef ref) const { return tensors_.contains(ref); }

  /// About what the constructor computes.
  static double flops(const Schedule& schedule);

 private:
  std::vector<double>& make(TensorRef ref);
  /// Of a value: tokens and batch.
  [[nodiscard]] std::int64_t rows() const {
    return (problem_.all_tokens() - problem_.cached) * problem_.batch;
  }
  /// Of keys and values in front of those.
  [[nodiscard]] std::int64_t cached_rows() const { return problem_.cached * problem_.batch; }
  /// A row's place in its sequence.
  [[nodiscard]] double position_of(std::int64_t row) const {
    return static_cast<double>(problem_.cached + row / problem_.batch % problem_.seq);
  }
  void fill_cached(TensorRef ref);
  [[nodiscard]] std::int64_t width(TensorRef ref) const;
  void fill(TensorRef ref);
  void forward(const Definition& d);
  void backward(const Definition& d);
  void attend(int label);
  void attend_back(int label);
  void add_sink(int label);
  void sink_back(int label, const std::vector<double>& delta);
  void look_up(const Definition& d);
  void look_up_back(const Definition& d);
  void sum_words(const Definition& d);
  void sum_words_back(const Definition& d);
  void lose(const Definition& d);
  void update(const Definition& d);
  void route(const Definition& d, bool backward);
  void spread(const Definition& d, bool backward);
  void activate_experts(const Definition& d, bool backward);
  void multiply_experts(const Definition& d, bool backward);
  void add_biases(const Definition& d, bool backward);
  void multiply(const Definition& d);
  void multiply_back(const Definition& d);
  void norm(const Definition& d);
  void norm_back(const Definition& d);
  void split(const Definition& d, bool backward);
  void split_columns(const Definition& d, bool backward);
  void join_latents(const Definition& d, bool backward);
  void norm_head(const Definition& d, std::vector<double>& head, std::int64_t gain);
  void norm_head_back(const Definition& d, std::vector<double>& head, const double* x,
                      std::int64_t gain);

  Problem problem_;  // as requested
  const Graph& graph_;
  GraphIndex index_;
  const InputData& data_;
  const Poll& poll_;
  std::map<TensorRef, std::vector<double>> tensors_;
};

/// Oracles of the ranks of one process: who asks first computes, the others wait.
class SharedOracles {
 public:
  /// Ranks of all processes that compute one of their own.
  explicit SharedOracles(int computing) : computing_(computing) {}
  [[nodiscard]] int computing() const { return computing_; }
  /// The schedule lives as long as this; every rank has the same one, and data alike. Throws on all
  /// ranks what one threw that computed.
  const LayerOracle& of(const Schedule& schedule, const InputData& data, const Poll& poll);

 private:
  struct Shared {
    std::unique_ptr<LayerOracle> oracle;
    std::exception_ptr failed;
    bool begun = false;
  };
  int computing_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::map<const Schedule*, Shared> known_;
};

}  // namespace spp::runtime
