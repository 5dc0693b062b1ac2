// What an object file asks others for.
#pragma once

#include <set>
#include <string>

namespace diapason {

// Names of the symbols that a relocatable ELF object of 64 bits uses and does not define ("expf"), without the one that
// linkers themselves define. Objects of another kind, and damaged ones: a set with the empty name, which no library
// has.
std::set<std::string> UndefinedSymbols(const std::string& object);

}  // namespace diapason
