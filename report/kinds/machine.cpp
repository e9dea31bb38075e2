// A machine's own file, as 'topology import' writes it.
#include "report/constants.hpp"
#include "report/kind.hpp"

namespace spp::report::kinds::machine {
namespace {

std::string subject(const JsonView& document) { return document.at("name").string(); }

void add(const JsonView& document, Sheet& sheet) {
  add_machine(sheet, document);
  sheet.heading("Constants");
  sheet.table(constants_of(document));
}

}  // namespace

extern const Kind entry{.format = "machine", .name = "Machine", .subject = subject, .add = add};

}  // namespace spp::report::kinds::machine
