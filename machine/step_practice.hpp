// How a stack runs a training step, as far as it changes what the step costs: what it hides, in
// which types it keeps and sends, what its host code takes, what lies in memory beside tensors. The
// part "step" of a stack's file (machine/stack.hpp); what a file does not say is the default here.
#pragma once

#include "base/json.hpp"
#include "base/units.hpp"
#include "schedule/problem.hpp"

#include <optional>
#include <string>
#include <vector>

namespace spp {

struct StepPractice {
  // ---- host: issued one after the other; a layer takes at least this
  Sourced<Seconds> host_kernel;    // of a kernel
  Sourced<Seconds> host_transfer;  // of a collective
  Sourced<Seconds>
      host_tensor_node;  // of one of tensor ranks, too, for each further node of theirs
  Sourced<Seconds> host_tensor_rank;  // and for each of them, where stages lie on several nodes
  Sourced<Seconds> host_exchange;     // of each transfer of a dispatch or combine of experts
  Sourced<Seconds> host_counts;       // of one, too: kernels stand until counts of tokens are there
  Sourced<Seconds> host_micro_batch;  // beside a micro-batch's layers, and each of its messages
  Sourced<Seconds> host_message;      // of a message between stages: both ranks stand
  Sourced<Seconds> host_step;         // once a step: data, gradient norm, optimizer, logging

  // ---- inference
  Sourced<Seconds> host_call;        // of a call beside its passes: prompt, scheduler, result
  Sourced<Seconds> decode;           // of a million pixels, latents to result, on one GPU
  Sourced<Seconds> served_exchange;  // host_exchange of an engine, whose devices count tokens
  Sourced<double> compiled;          // elementwise, of what torch.compile fused
  Sourced<double> compiled_host;     // the same of the host's times, over those of eager code

  // ---- kernels
  Sourced<double> elementwise;  // bytes of kernels bound by memory, over those of fused ones
  Sourced<double> position;     // the same of RoPE and of the norms of Q and K; 0: as elementwise
  Sourced<double> optimizer;    // the same of the optimizer
  Sourced<double>
      slowdown;  // of kernels beside a transfer of weights or gradients, per second of it

  Sourced<double>
      tensor_sequence;  // 1: between GEMMs tokens are split over tensor ranks; 0: copied

  // ---- transfers that kernels hide: 0 nothing, 1 as far as there are kernels
  Sourced<double> tensor_hidden;      // gathers and scatters around GEMMs, in pieces
  Sourced<double> tensor_beside;      // those of the backward that need no pieces
  Sourced<double> expert_hidden;      // dispatch and combine
  Sourced<double> device_counts;      // GPUs of a node from which dispatchers count tokens on the
                                      // device, and nothing stands; 0: they never do
  Sourced<double> once_per_node;      // 1: a token for several experts of a node travels to it once
  Sourced<double> gradients_hidden;   // behind the last backward
  Sourced<double> parameters_hidden;  // behind the next forward
  Sourced<double> gathered_kept;    // 1: what is gathered in front of a GEMM stays for its backward
  Sourced<double> messages_hidden;  // between stages, of interleaved pipelines
  Sourced<double> messages_gathered;  // 1: copied hidden states travel between stages in parts, one
                                      // a tensor rank, which the next stage's ranks gather
  Sourced<double> replays_whole;  // 1: layers that run again do so to their end; 0: as far as their
                                  // backward reads
  Sourced<double> interleaves;    // 1: pipelines have virtual stages unless told
  Sourced<double> even_stages;    // 1: the loss head counts where layers are dealt out to stages
  Sourced<double> whole_tables;   // 1: two stages that have one table sum up its whole gradient on
                                  // every rank, 0: under ZeRO each rank its part

  // ---- pieces in which weights' transfers go, one after the other
  Sourced<Bytes> gradient_bucket;  // 0: a layer's at once
  Sourced<double> zero_pieces;  // of a layer under ZeRO 1 and 2; 0: gradients as above, parameters
                                // all at once

  Sourced<double> zero_by_rank;  // 1: parameters come by a broadcast of each rank's, ring by ring

  // ---- what lies in the host's memory
  Sourced<Seconds> host_update;  // of a parameter, by all CPUs of a node
  Sourced<Seconds> host_add;     // of a gradient to that of earlier micro-batches, by all of them

  // ---- bytes of a weight
  Sourced<double> gradient_bytes;   // as gradients travel
  Sourced<double> state_parameter;  // held: 2 in 16 bits
  Sourced<double> state_gradient;   // held beside
  Sourced<double> bf16_gradient;    // held beside that in bf16 alone: a sum in fp32
  Sourced<double> state_optimizer;  // held and cut by ZeRO 1: master, moments
  Sourced<double> state_update;     // of the same part, copies that the update works on

  // ---- memory
  Sourced<double> logit_bytes;  // at the peak, of a logit
  Sourced<double> logit_part;   // of a micro-batch's logits that exist at once: chunked losses
  Sourced<double> logit_kept;   // bytes of a logit that wait for the backward, of a loss in one
  Sourced<double> mlp_part;     // of a micro-batch's rows inside an MLP at once: tiled MLPs
  Sourced<double> kept;  // activations that wait for the backward, over those of fused kernels
  Sourced<double> position_working;  // bytes of a number of Q that lie beside while RoPE runs
  Sourced<double> held_sums;  // 1: whole sums that tensor ranks scatter stay for a forward of the
                              // last stage's layers: the host, ahead, has not seen transfers end
  Sourced<double> kept_outputs;   // 1: stages keep what each micro-batch left with until the step
                                  // ends, and have room for all that they receive
  Sourced<double> stage_buffers;  // micro-batches that stages but the last have room for, for each
                                  // stage of the pipeline; 0: those on their way
  Sourced<double> dummy_gradients;  // 1: GEMMs that add to gradients themselves leave a 16 bit one
                                    // of each shape of weight
  Sourced<double> narrow_kept;  // 1: GEMMs of fewer bits keep their inputs as they multiplied them
  Sourced<double> slack;        // of what is allocated, that the allocator holds beside
  Sourced<double> crowded;  // part of a GPU's usable memory beyond which the allocator frees its
                            // cache and asks again; 0: never
  Sourced<double> crowded_slowdown;  // of a step that does
  Sourced<Bytes> context;            //  of a process: context, kernels, workspaces
  Sourced<Bytes> communicator;       // of a communicator, its buffers
  // What it prints of memory. 1: the first stage's, not the fullest; 0: only what the allocator
  // holds
  Sourced<double> first_stage_reported, process_reported;
  /// Relative standard deviation of steps that these constants leave: versions, settings, machines.
  Sourced<double> unexplained;
  std::vector<std::string> selective;  // modules that "selective" computes again

  // ---- what it does unless told
  std::string recompute;           // computes again: "none", "selective", "full"; "": not known
  std::string offload;             // to the host's memory: "none", "optimizer", …; "": nothing
  std::string dispatcher;          // to experts: "all-to-all", "all-gather"; "": either
  std::optional<int> zero;         // stage
  Sourced<double> virtual_stages;  // of a rank, where they interleave; 0: a layer each
  Sourced<double> stage_micro_batches;  // micro-batches for each virtual stage; 0: not known
};

/// Bytes of a weight's gradients that a rank adds up.
double added_gradient(const StepPractice& practice, bool bf16);

/// What a file does not say.
const StepPractice& default_practice();

/// Of a training in this type: practices are of 16 bits. In fp32 weights, what travels and what is
/// added up have 4 bytes, and no optimizer holds a copy of them beside its moments.
StepPractice in_type(StepPractice practice, DType dtype);

/// Under torch.compile, as far as the stack has it.
StepPractice compiled(StepPractice practice);

/// Of CPU ranks: our own executor, whose launches are part of what a calibration measures and whose
/// memory is its arena's.
StepPractice on_cpus(StepPractice practice);

/// With dispatchers that count on the device on every machine.
StepPractice counting_on_device(StepPractice practice);

/// The object "step" of a stack; what is missing is the default. InputError names file and key.
StepPractice read_step_practice(const JsonView& step);

}  // namespace spp
