// The kernels of the host as a target of ops.hpp.
#pragma once

#include "runtime/kernels/attention.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/experts.hpp"
#include "runtime/kernels/latent.hpp"
#include "runtime/kernels/layer.hpp"
#include "runtime/kernels/products.hpp"
#include "runtime/kernels/words.hpp"

namespace spp::runtime {

/// Where run_kernel (ops.hpp) finds the kernels of the host.
struct HostKernels {
  AttentionKernels& attention;
  const Poll& poll;

  void forward(const AttentionForwardArgs& args) const { attention.forward(args, poll); }
  void backward(const AttentionBackwardArgs& args) const { attention.backward(args, poll); }
  template <class... Args>
  void scores(const Args&... args) const {
    runtime::scores(args..., poll);
  }
  template <class... Args>
  void softmax(const Args&... args) const {
    runtime::softmax(args..., poll);
  }
  template <class... Args>
  void softmax_backward(const Args&... args) const {
    runtime::softmax_backward(args..., poll);
  }
  template <class... Args>
  void weigh(const Args&... args) const {
    runtime::weigh(args..., poll);
  }
  template <class... Args>
  void weigh_back(const Args&... args) const {
    runtime::weigh_back(args..., poll);
  }
  template <class... Args>
  void linear_forward(const Args&... args) const {
    runtime::linear_forward(args..., poll);
  }
  void linear_backward(const LinearBackwardArgs& args) const {
    runtime::linear_backward(args, poll);
  }
  template <class... Args>
  void make_state(const Args&... args) const {
    runtime::make_state(args..., poll);
  }
  template <class... Args>
  static void sum_states(const Args&... args) {
    runtime::sum_states(args...);
  }
  template <class... Args>
  void apply_state(const Args&... args) const {
    runtime::apply_state(args..., poll);
  }
  template <class... Args>
  static void row_dot(const Args&... args) {
    runtime::row_dot(args...);
  }
  template <class... Args>
  static void merge(const Args&... args) {
    runtime::merge(args...);
  }
  static void sink(const SinkArgs& args) { runtime::sink(args); }
  static void sink_backward(const SinkBackwardArgs& args) { runtime::sink_backward(args); }
  template <class... Args>
  static void rescale(const Args&... args) {
    runtime::rescale(args...);
  }
  template <class... Args>
  static void accumulate(const Args&... args) {
    runtime::accumulate(args...);
  }
  template <class... Args>
  static void fill(const Args&... args) {
    runtime::fill(args...);
  }
  template <class... Args>
  static void move(const Args&... args) {
    runtime::move(args...);
  }
  void gemm(const GemmArgs& args) const { attention.gemm(args, poll); }
  static void add_bias(const BiasArgs& args) { runtime::add_bias(args); }
  static void bias_gradient(const BiasGradientArgs& args) { runtime::bias_gradient(args); }
  static void bias_weights_gradient(const BiasWeightsArgs& args) {
    runtime::bias_weights_gradient(args);
  }
  static void rms_norm(const NormArgs& args, float epsilon) { runtime::rms_norm(args, epsilon); }
  static void rms_norm_backward(const NormBackwardArgs& args) { runtime::rms_norm_backward(args); }
  static void layer_norm(const NormArgs& args, float epsilon) {
    runtime::layer_norm(args, epsilon);
  }
  static void layer_norm_backward(const NormBackwardArgs& args) {
    runtime::layer_norm_backward(args);
  }
  static void split_heads(const SplitHeadsArgs& args) { runtime::split_heads(args); }
  static void join_heads(const JoinHeadsArgs& args) { runtime::join_heads(args); }
  static void latent_heads(const LatentHeadsArgs& args) { runtime::latent_heads(args); }
  static void join_latent_heads(const LatentHeadsArgs& args) { runtime::join_latent_heads(args); }
  template <class... Args>
  static void swiglu(const Args&... args) {
    runtime::swiglu(args...);
  }
  static void swiglu_backward(const SwigluBackwardArgs& args) { runtime::swiglu_backward(args); }
  template <class... Args>
  static void gelu(const Args&... args) {
    runtime::gelu(args...);
  }
  template <class... Args>
  static void gelu_backward(const Args&... args) {
    runtime::gelu_backward(args...);
  }
  template <class... Args>
  static void add(const Args&... args) {
    runtime::add(args...);
  }
  static void route(const RouteArgs& args) { runtime::route(args); }
  static void route_backward(const RouteBackwardArgs& args) { runtime::route_backward(args); }
  static void expert_swiglu(const ExpertSwigluArgs& args) { runtime::expert_swiglu(args); }
  static void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args) {
    runtime::expert_swiglu_backward(args);
  }
  static void embedding(const EmbeddingArgs& args) { runtime::embedding(args); }
  static void embedding_backward(const EmbeddingBackwardArgs& args) {
    runtime::embedding_backward(args);
  }
  static void word_sums(const WordSumsArgs& args) { runtime::word_sums(args); }
  static void word_sums_backward(const WordSumsBackwardArgs& args) {
    runtime::word_sums_backward(args);
  }
  static void word_loss(const WordLossArgs& args) { runtime::word_loss(args); }
  static void adam(const AdamArgs& args) { runtime::adam(args); }
};

}  // namespace spp::runtime
