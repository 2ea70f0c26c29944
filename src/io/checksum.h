// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; the check of "123456789" is 0xE3069283), for checkpoints. With
// SSE 4.2 the processor's own instruction; otherwise tables, eight bytes at a time. Both give the same value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace filigree {

// The checksum of `previous` bytes followed by these: crc32c(b, n, crc32c(a, m)) is that of a then b.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous = 0);

// The same by tables, on any processor.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t previous = 0);

// Of a whole file; UserError when it cannot be read.
std::uint32_t crc32c_file(const std::filesystem::path& path);

}  // namespace filigree
