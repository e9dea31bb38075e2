#include "python/convert.hpp"

#include "base/error.hpp"

#include <cmath>
#include <string>

namespace spp::python {
namespace {

namespace py = pybind11;

/// Names of files need not be UTF-8; a printed document has a replacement there, too.
py::str text_of(const std::string& text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace");
  if (made == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::str>(made);
}

/// Documents are walked recursively: as deep as those that are read from files.
Json json_of(const py::handle& value, const std::string& where, std::size_t levels) {
  if (levels == 0) {
    throw InputError(where, fmt::format("nested more than {} levels deep", JsonLimits().levels));
  }
  if (value.is_none()) {
    return {};
  }
  if (py::isinstance<py::bool_>(value)) {
    return value.cast<bool>();
  }
  if (py::isinstance<py::int_>(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0) {
      throw InputError(where, "a whole number of more than 63 bits");
    }
    return number;
  }
  if (py::isinstance<py::float_>(value)) {
    return value.cast<double>();
  }
  if (py::isinstance<py::str>(value)) {
    return value.cast<std::string>();
  }
  if (py::isinstance<py::dict>(value)) {
    Json object = Json::object();
    auto& members = object.get_ref<Json::object_t&>();
    for (const auto& [key, member] : py::reinterpret_borrow<py::dict>(value)) {
      if (!py::isinstance<py::str>(key)) {
        throw InputError(where,
                         fmt::format("key {} is no text", py::repr(key).cast<std::string>()));
      }
      const auto name = key.cast<std::string>();
      // Keys of a dict differ: nothing has to be looked up.
      members.emplace_back(name, json_of(member, fmt::format("{}: {}", where, name), levels - 1));
    }
    return object;
  }
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    Json list = Json::array();
    for (const py::handle member : value) {
      list.push_back(json_of(member, where, levels - 1));
    }
    return list;
  }
  throw InputError(
      where, fmt::format("a {} is none of a document's values (dict, list, str, int, "
                         "float, bool, None)",
                         py::str(py::type::handle_of(value).attr("__name__")).cast<std::string>()));
}

}  // namespace

py::object to_python(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: {
      py::dict object;
      for (const auto& [key, member] : value.items()) {
        object[text_of(key)] = to_python(member);
      }
      return object;
    }
    case Json::value_t::array: {
      py::list list(value.size());
      for (std::size_t i = 0; i < value.size(); ++i) {
        list[i] = to_python(value[i]);
      }
      return list;
    }
    case Json::value_t::string:
      return text_of(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return py::bool_(value.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(value.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(value.get<std::uint64_t>());
    case Json::value_t::number_float: {
      const auto number = value.get<double>();  // JSON has no others than finite ones
      return std::isfinite(number) ? py::object(py::float_(number)) : py::none();
    }
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return py::none();
}

Json to_json(const py::handle& value, const std::string& where) {
  return json_of(value, where, JsonLimits().levels);
}

}  // namespace spp::python
