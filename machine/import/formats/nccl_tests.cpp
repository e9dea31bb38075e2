// Text and JSON of NCCL's performance tests (machine/nccl_tests.hpp): which GPUs, on how many
// hosts, and how fast their messages were.
#include "machine/nccl_tests.hpp"

#include "machine/import/format.hpp"

namespace spp::imports::formats::nccl_tests {
namespace {

bool has(const Source& source, std::string_view words) {
  return source.text.find(words) != std::string::npos;
}

bool recognises(const Source& source) {
  const bool json = !source.text.empty() &&
                    source.text.find_first_not_of(" \t\r\n") == source.text.find('{') &&
                    has(source, "\"config\"") && has(source, "\"results\"");
  return !source.xml && (json || has(source, "# nThread") ||
                         (has(source, "algbw") && has(source, "busbw") && has(source, "#  ")));
}

void read(const Source& source, Facts& facts) {
  for (NcclTest& test : parse_nccl_tests(source.text, source.file)) {
    GpuFact gpu;
    gpu.name = test.gpu;
    gpu.place = {source.file, 0};
    facts.gpus.push_back(std::move(gpu));
    facts.hosts.push_back(
        {.hosts = static_cast<int>(test.hosts.size()), .place = {source.file, 0}});
    facts.tests.push_back(std::move(test));
  }
}

}  // namespace

extern const Format entry{.name = "nccl-tests",
                          .title = "NCCL's performance tests, text or JSON",
                          .recognises = recognises,
                          .read = read};

}  // namespace spp::imports::formats::nccl_tests
