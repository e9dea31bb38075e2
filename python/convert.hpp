// Python's values and documents, either way. The caller holds the GIL.
#pragma once

#include "base/json.hpp"

#include <pybind11/pybind11.h>

namespace spp::python {

/// What json.loads() would make of the printed document.
pybind11::object to_python(const Json& value);

/// A dict, list, str, number, bool or None, to any depth. InputError(where) for anything else.
Json to_json(const pybind11::handle& value, const std::string& where);

}  // namespace spp::python
