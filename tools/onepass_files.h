// Files of arrays. The first bytes select the input format (.npy, .npz or .png), also for standard input. The name's ending selects the
// output format.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/literal.h"
#include "onepass/array.h"
#include "onepass/npy.h"
#include "runtime/os.h"
#include "runtime/os_output.h"
#include "runtime/program.h"

namespace onepass::command {

/// The value of a program's input: an array, or a number without a strong type.
struct Input {
  std::optional<Array> array;
  compiler::Literal number;
  runtime::Argument argument() const { return {.array = array ? &*array : nullptr, .number = number}; }
};

/// Parses the whole text as a number of the language (`3`, `0.5`, `1e-3`, `true`, `inf`, `nan`, `pi`, `e`), with an optional sign. Returns
/// nullopt for any other text. Throws ValueError for an integer that does not fit 64 bits.
std::optional<compiler::Literal> literal_of(std::string_view text);

/// Reads the values of inputs. Opens each file once and reads standard input once. Throws IoErrors that name the file.
class InputFiles {
 public:
  /// Loads `file`: a number, `-`, a .npy file, a PNG picture, the array `name` (or the only array) of a .npz file, or FILE.npz:ARRAY.
  Input load(const std::string& name, const std::string& file);
  /// Returns the names of the arrays in a .npz file.
  std::vector<std::string> names_in(const std::string& file);

 private:
  struct Archive;
  struct Bytes {
    std::span<std::byte> bytes;
    std::shared_ptr<void> owner;
    std::shared_ptr<const Archive> archive;  // only for a .npz file
  };
  const Bytes& open(const std::string& file);
  Array member(const std::string& file, const Bytes& from, const std::string& name);
  std::map<std::string, Bytes> open_;
};

/// Splits FILE.npz:ARRAY into (FILE.npz, ARRAY); returns (file, "") for anything else.
std::pair<std::string, std::string> split_member(const std::string& file);

/// The outputs of a job: either all outputs are written or no output is written. `commit` renames the files. The destructor removes
/// uncommitted files. Several outputs may go to one .npz file. Outputs written in place (pipes, devices, standard output) are written in
/// `commit`, before any rename.
class OutputFiles {
 public:
  explicit OutputFiles(SaveOptions options) : options_(options) {}
  /// Adds an output. Throws IoError if the file cannot be written, ValueError if its format does not support the array.
  void add(const std::string& name, const std::string& file, const Array& array);
  void commit();

 private:
  struct Output {
    os::AtomicFile file;
    std::vector<std::pair<std::string, Array>> arrays;  // with their names; several only in a .npz file
    bool written = false;
  };
  static void write(Output& output);
  SaveOptions options_;
  std::vector<Output> outputs_;
};

// ---- formats

/// A member of a .zip file, stored or compressed.
struct ZipMember {
  std::string name;
  std::uint64_t header = 0, stored = 0, size = 0;  // offset of the header; bytes in the file; bytes unpacked
  std::uint32_t crc = 0;
  std::uint16_t method = 0, flags = 0;
};
std::vector<ZipMember> zip_members(const std::string& path, std::span<const std::byte> bytes);
std::pair<std::span<std::byte>, std::shared_ptr<void>> zip_read(const std::string& path, std::span<std::byte> bytes,
                                                                const std::shared_ptr<void>& owner, const ZipMember& member);
/// Writes an uncompressed .npz file of these arrays, like numpy.savez. Elements begin at multiples of 64 bytes of the file.
void npz_write(os::AtomicFile& file, std::span<const std::pair<std::string, Array>> arrays);

/// Reads the picture as u8, or as u16 if it has 16 bits. The shape is [height, width] for gray without alpha, else [height, width, 2 to 4].
Array png_read(const std::string& path, std::span<const std::byte> bytes);
/// Accepts u8, u16 or bool (0 and 255) of [height, width] or [height, width, 1 to 4]. Otherwise throws a ValueError that names the output.
void png_check(const std::string& name, const Array& array);
void png_write(os::AtomicFile& file, const Array& array);

}  // namespace onepass::command
