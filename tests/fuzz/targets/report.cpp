// Documents of ours and traces, as `report` reads them: whatever is understood becomes a page that
// is well-formed, holds no script, and is not much larger than what it was made of.
#include "report/page.hpp"
#include "tests/fuzz/target.hpp"

#include <array>
#include <pugixml.hpp>

namespace spp::fuzz::targets::report {

extern const Target entry{
    "report", Form::json, [](std::string_view text) {
      allow_refusal([&] {
        std::array<spp::report::Source, 1> sources;
        sources[0] = {.file = "document.json", .document = parse_json(text, "document.json")};
        const std::string html = spp::report::page(sources);
        constexpr std::size_t most_of_a_page = 4'000'000;
        ensure(html.size() < most_of_a_page, "a page without end");
        pugi::xml_document xml;
        ensure(xml.load_buffer(html.data(), html.size()).status == pugi::status_ok,
               "a page that is not well-formed");
        ensure(xml.select_nodes("//script").empty(), "a page with a script");
      });
    }};

}  // namespace spp::fuzz::targets::report
