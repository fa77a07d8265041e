// Helpers for messages about names. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace whet::driver {

std::string Join(const std::vector<std::string>& items, std::string_view separator = ", ");

// A file name for an output: every character other than letters, digits, '.', '_', '-' becomes '_'.
std::string FileNameFor(std::string_view name);

// Labels of tasks are node names joined by '+', and exporters put the same path before every node's
// name. For people: what all parts of all labels begin with, up to a '/'; and a label without it.
std::string CommonPath(const std::vector<std::string>& labels);
std::string WithoutPath(std::string_view label, std::string_view path);

// "12.3 MiB"
std::string BytesText(double bytes);

}  // namespace whet::driver
