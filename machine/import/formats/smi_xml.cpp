// `nvidia-smi -q -x`: what the driver knows of each GPU.
#include "base/error.hpp"
#include "machine/import/format.hpp"
#include "machine/import/xml.hpp"

namespace spp::imports::formats::smi_xml {
namespace {

bool recognises(const Source& source) {
  return source.xml && source.text.find("<nvidia_smi_log") != std::string::npos;
}

/// "81559 MiB"
std::optional<Bytes> memory_of(std::string_view text) {
  const int mib = text.ends_with("MiB") ? leading_int(text) : -1;
  return mib > 0 ? std::optional(Bytes(std::int64_t{mib} << 20)) : std::nullopt;
}

void read(const Source& source, Facts& facts) {
  pugi::xml_document document;
  parse_xml(source, document, Doctype::named);
  const pugi::xml_node log = document.child("nvidia_smi_log");
  int count = 0;
  for (const pugi::xml_node node : log.children("gpu")) {
    GpuFact gpu;
    gpu.index = count++;
    gpu.name = std::string(trimmed(node.child("product_name").text().get()));
    gpu.place = place_of(source, node);
    gpu.memory = memory_of(trimmed(node.child("fb_memory_usage").child("total").text().get()));
    gpu.mig = trimmed(node.child("mig_mode").child("current_mig").text().get()) == "Enabled";
    const pugi::xml_node link = node.child("pci").child("pci_gpu_link_info");
    gpu.pcie_generation =
        std::max(0, leading_int(link.child("pcie_gen").child("max_link_gen").text().get()));
    gpu.pcie_width = std::max(
        0, leading_int(link.child("link_widths").child("current_link_width").text().get()));
    if (gpu.name.empty() || gpu.name == "N/A") {
      throw InputError(to_string(gpu.place), "this <gpu> has no product_name");
    }
    facts.gpus.push_back(std::move(gpu));
    if (count > most_gpus_of_host) {
      throw InputError(source.file, fmt::format("more than {} GPUs", most_gpus_of_host));
    }
  }
  if (count == 0) {
    throw InputError(source.file, "lists no <gpu>; nvidia-smi -q -x of a machine with GPUs does");
  }
  facts.counts.push_back(
      {.gpus = count, .origin = "nvidia-smi -q -x", .place = place_of(source, log)});
}

}  // namespace

extern const Format entry{
    .name = "smi-xml", .title = "nvidia-smi -q -x", .recognises = recognises, .read = read};

}  // namespace spp::imports::formats::smi_xml
