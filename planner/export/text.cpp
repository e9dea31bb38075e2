#include "planner/export/text.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace spp::frameworks {

std::string Command::text() const { return fmt::format("{}\n", fmt::join(lines_, " \\\n    ")); }

int processes_per_node(const Launch& launch) {
  return std::min(launch.world(), launch.gpus_per_node);
}

std::string torchrun(const Launch& launch, std::string_view program) {
  const std::string nodes = launch.nodes > 1
                                ? fmt::format(
                                      " --nnodes {} --node-rank \"$NODE_RANK\" --master-addr "
                                      "\"$MASTER_ADDR\" --master-port 29500",
                                      launch.nodes)
                                : " --standalone";
  return fmt::format("torchrun --nproc-per-node {}{} {}", processes_per_node(launch), nodes,
                     program);
}

void note_nodes(Snippet& snippet, const Launch& launch) {
  if (launch.nodes == 1) {
    return;
  }
  snippet.notes.emplace_back(
      "Start it on every node; MASTER_ADDR is the first node's name, NODE_RANK counts the nodes "
      "from 0.");
  const int last = launch.world() - (launch.nodes - 1) * launch.gpus_per_node;
  if (last != launch.gpus_per_node) {
    snippet.notes.push_back(
        fmt::format("The last node runs {} processes instead of {}.", last, launch.gpus_per_node));
  }
}

void note_prompts(Snippet& snippet, const Launch& launch, std::string_view by) {
  if (launch.micro_batches > 1) {
    const std::int64_t prompts = launch.problem.batch;
    snippet.notes.push_back(
        fmt::format("Of {} prompts that arrive together {} computes {} at a time, "
                    "as many as fit the tokens that it batches.",
                    prompts * launch.micro_batches, by, prompts));
  }
}

std::int64_t context_length(Snippet& snippet, const Launch& launch, std::int64_t kept_back,
                            std::string_view by, std::string_view allows) {
  const std::int64_t wanted = launch.problem.end() + kept_back;
  const std::int64_t most = launch.model != nullptr ? launch.model->max_positions : 0;
  if (most == 0 || wanted <= most) {
    return wanted;
  }
  if (launch.problem.end() <= most) {
    snippet.notes.push_back(
        fmt::format("{} takes no longer context than the model's {} tokens, and keeps {} of them "
                    "for the answer: the longest prompt has {}.",
                    by, most, kept_back, most - kept_back));
    return most;
  }
  snippet.environment.push_back(
      {.name = std::string(allows),
       .value = "1",
       .why = fmt::format("a context longer than the {} tokens that the model is made for", most)});
  snippet.notes.push_back(
      fmt::format("The model is made for {} tokens: for more its answers want another scaling of "
                  "its positions (rope_scaling), as its authors publish it, if they do.",
                  most));
  return wanted;
}

void note_padding(Snippet& snippet, const Launch& launch, std::string_view by) {
  const std::int64_t more = padded(launch.problem, launch.attention).seq - launch.problem.seq;
  if (more > 0) {
    snippet.notes.push_back(
        fmt::format("{} adds {} tokens to a sequence of {}, so that {} ranks "
                    "divide it.",
                    by, more, launch.problem.seq, launch.context()));
  }
}

std::string sequence_group(const Launch& launch, std::string_view name) {
  return launch.dp == 1
             ? fmt::format("{} = dist.group.WORLD\n", name)
             : fmt::format("{}, _ = dist.new_subgroups(group_size={})  # the ranks of a sequence\n",
                           name, launch.context());
}

std::string rank_lists(const std::vector<std::vector<int>>& groups) {
  std::vector<std::string> lists;
  lists.reserve(groups.size());
  for (const std::vector<int>& group : groups) {
    lists.push_back(fmt::format("[{}]", fmt::join(group, ", ")));
  }
  return fmt::format("[{}]", fmt::join(lists, ", "));
}

std::string_view long_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::fp16 ? "float16" : "float32";
}

std::string_view python(bool value) { return value ? "True" : "False"; }

Variable expandable_segments() {
  return {.name = "PYTORCH_CUDA_ALLOC_CONF",
          .value = "expandable_segments:True",
          .why = "long sequences fragment PyTorch's allocator"};
}

}  // namespace spp::frameworks
