#include "report/page.hpp"

#include "base/suggest.hpp"
#include "base/version.hpp"
#include "report/kind.hpp"
#include "report/markup.hpp"
#include "report/style.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace spp::report {
namespace {

struct Section {
  std::string id, name, subject, file, html;
};

std::vector<std::string> formats() {
  std::vector<std::string> names;
  for (const Kind* kind : kinds::all()) {
    if (!kind->format.empty()) {
      names.push_back(fmt::format("sp-plan/{}", kind->format));
    }
  }
  return names;
}

const Kind& kind_of(const JsonView& document) {
  if (!document.value().is_object()) {
    document.fail("is not a document of sp-plan (a JSON object with a \"format\")");
  }
  const auto format = document.find("format");
  if (!format) {
    if (document.find("traceEvents")) {
      return **std::ranges::find(kinds::all(), "", &Kind::format);
    }
    document.fail("is neither a document of sp-plan (it has no \"format\") nor a trace");
  }
  const std::string name = format->string();
  for (const Kind* kind : kinds::all()) {
    if (!kind->format.empty() && name == fmt::format("sp-plan/{}", kind->format)) {
      expect_format(document, name);
      return *kind;
    }
  }
  format->fail(fmt::format("no report is made of '{}'{}", name, did_you_mean(name, formats())));
}

Section section_of(const Source& source, std::size_t index) {
  const JsonView document(source.document, source.file);
  const Kind& kind = kind_of(document);
  Sheet sheet(fmt::format("s{}", index + 1));
  Section section{.id = fmt::format("s{}", index + 1),
                  .name = std::string(kind.name),
                  .subject = kind.subject(document),
                  .file = source.file,
                  .html = {}};
  kind.add(document, sheet);
  section.html = sheet.html();
  return section;
}

std::string shown_name(const std::string& file) {
  return std::filesystem::path(file).filename().string();
}

std::string contents(const std::vector<Section>& sections) {
  std::string text = "<nav aria-label=\"Contents\"><h2>Contents</h2><ol>\n";
  for (const Section& s : sections) {
    text +=
        fmt::format("<li><a href=\"#{}\">{}</a> {}</li>\n", s.id,
                    escaped(s.subject.empty() ? s.name : s.name + ": " + s.subject),
                    fmt::format("<span class=\"quiet\">{}</span>", escaped(shown_name(s.file))));
  }
  return text + "</ol></nav>\n";
}

}  // namespace

std::string page(std::span<const Source> sources) {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sections.push_back(section_of(sources[i], i));
  }
  const bool alone = sections.size() == 1;
  const std::string title = !alone ? fmt::format("{} documents", sections.size())
                            : sections[0].subject.empty() ? sections[0].name
                                                          : sections[0].subject;
  const std::string_view what = alone ? std::string_view(sections[0].name) : "Report";
  std::string html =
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta "
      "charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; "
      "style-src 'unsafe-inline'; img-src data:\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n";
  html += fmt::format(
      "<title>{} – sp-plan</title>\n<style>{}</style>\n</head>\n<body>\n{}<div "
      "class=\"page\">\n<header><p class=\"brand\">sp-plan · {}</p>\n<h1>{}</h1></header>\n",
      escaped(title), style_sheet(), patterns(), what, escaped(title));
  html += alone ? "<main>\n" : contents(sections) + "<main>\n";
  for (const Section& s : sections) {
    html += fmt::format("<section id=\"{}\">\n", s.id);
    if (!alone) {
      html += fmt::format("<h2>{}</h2>\n",
                          escaped(s.subject.empty() ? s.name : s.name + ": " + s.subject));
    }
    html += fmt::format("<p class=\"file\">{}</p>\n{}</section>\n", escaped(shown_name(s.file)),
                        s.html);
  }
  html += fmt::format(
      "</main>\n<footer><p>Times are simulated from the constants that are listed, unless they are "
      "called "
      "measured or published. Intervals follow from the constants' spreads. Made by sp-plan {} "
      "({}).</p>"
      "</footer>\n</div>\n</body>\n</html>\n",
      escaped(version()), escaped(commit()));
  return html;
}

std::string picture(const Source& source) {
  const JsonView document(source.document, source.file);
  const Kind& kind = kind_of(document);
  if (kind.picture == nullptr) {
    document.at("format").fail("there is no picture of such documents, but a report");
  }
  return kind.picture(document);
}

}  // namespace spp::report
