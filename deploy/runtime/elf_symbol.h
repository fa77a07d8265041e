// Finds the descriptor function of an artifact in the file itself, so that a damaged or foreign
// file is told apart before the dynamic loader maps it and runs its initialisers. Reads the headers
// and the dynamic symbols only (the weights of a large model stay on disk); every offset is checked
// against the file's size.
#pragma once
#include <string>

namespace whet {

// The name of the one exported `whet_model_*_v1` function, or an empty string and the reason in
// `error`.
std::string FindDescriptorSymbol(const std::string& path, std::string* error);

}  // namespace whet
