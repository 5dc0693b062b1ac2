// Small codecs of the history.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace diapason {

// RFC 4648, with padding.
std::string Base64Encode(const std::string& bytes);
// Nothing unless Base64Encode gives this text.
std::optional<std::string> Base64Decode(const std::string& text);

// The text with each byte that is not part of well-formed UTF-8, and each NUL, replaced by U+FFFD.
std::string CleanUtf8(const std::string& text);

// The same with control characters, line breaks too, replaced by '?': for messages that quote what a file holds.
std::string OneLine(const std::string& text);

// 64-bit FNV-1a: finds damage, not forgery.
uint64_t Fnv1a(const std::string& bytes);

// 32 lower-case hexadecimal digits from the system's random source.
std::string RandomUuid();
bool IsUuid(const std::string& text);

// Sixteen lower-case hexadecimal digits.
std::string Hex64(uint64_t value);

}  // namespace diapason
