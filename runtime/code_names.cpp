// See code_names.h.
#include "runtime/code_names.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/fork.h"
#include "runtime/log.h"
#include "runtime/os.h"

// The names and the layout are GDB's. Weak: a program that includes LLVM, and the static library of onepass, has one definition.
extern "C" {
struct jit_code_entry {
  jit_code_entry *next_entry, *prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version, action_flag;
  jit_code_entry *relevant_entry, *first_entry;
};
[[gnu::noinline, gnu::used, gnu::weak, gnu::visibility("protected")]] void __jit_debug_register_code() {
  asm volatile("" ::: "memory");
}  // NOLINT
[[gnu::used, gnu::weak, gnu::visibility("protected")]] jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};  // NOLINT
}

namespace onepass::runtime {

namespace {

struct Wanted {
  bool perf = false, gdb = false;
};

const Wanted& wanted() {
  static const Wanted all = [] {
    Wanted w;
    const std::string value = os::environment("ONEPASS_SYMBOLS").value_or("");
    for (std::string_view rest = value; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      if (word == "perf") w.perf = true;
      else if (word == "gdb") w.gdb = true;
      else log(LogLevel::warning, "ONEPASS_SYMBOLS: `{}` is not known. Set it to perf, gdb or perf,gdb.", word);
    }
    return w;
  }();
  return all;
}

std::mutex& mutex() {
  static std::mutex* const made = [] {  // never destroyed: threads may outlive main
    in_forked_child([] { new (&mutex()) std::mutex; });
    return new std::mutex;
  }();
  return *made;
}

// Adds a line to the map of this process, which must be a file of the same user: other users can write to /tmp.
void add_to_map(std::span<const std::byte> code, std::string_view name) {
  const std::string path = fmt::format("/tmp/perf-{}.map", ::getpid());
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return;
  struct stat about {};
  if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == ::geteuid()) {
    const std::string line = fmt::format("{:x} {:x} {}\n", reinterpret_cast<std::uintptr_t>(code.data()), code.size(), name);
    [[maybe_unused]] const auto written = ::write(file, line.data(), line.size());  // one write: threads' lines do not mix
  }
  ::close(file);
}

// An ELF object with one function symbol at the code's address, and the unwind tables at theirs.
std::vector<std::byte> symbol_file(std::span<const std::byte> code, std::string_view name, std::span<const std::byte> unwind) {
  constexpr std::string_view kSections("\0.text\0.symtab\0.strtab\0.shstrtab\0.eh_frame\0", 43);
  std::string names(1, '\0');
  names += name;
  names += '\0';
  Elf64_Sym function{};
  function.st_name = 1;
  function.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  function.st_shndx = 1;
  function.st_size = code.size();
  const std::array<Elf64_Sym, 2> symbols = {Elf64_Sym{}, function};
  std::array<Elf64_Shdr, 6> sections{};
  std::vector<std::byte> file(sizeof(Elf64_Ehdr) + sizeof(sections));
  const auto add = [&](Elf64_Shdr& section, const void* bytes, std::size_t size) {
    file.resize((file.size() + 7) / 8 * 8);
    section.sh_offset = file.size(), section.sh_size = size, section.sh_addralign = 1;
    const auto* const begin = static_cast<const std::byte*>(bytes);
    file.insert(file.end(), begin, begin + size);
  };
  sections[1] = {.sh_name = 1,
                 .sh_type = SHT_NOBITS,
                 .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                 .sh_addr = reinterpret_cast<std::uintptr_t>(code.data()),
                 .sh_offset = file.size(),
                 .sh_size = code.size(),
                 .sh_link = 0,
                 .sh_info = 0,
                 .sh_addralign = 16,
                 .sh_entsize = 0};
  sections[2].sh_name = 7, sections[2].sh_type = SHT_SYMTAB, sections[2].sh_link = 3, sections[2].sh_info = 1;
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3].sh_name = 15, sections[3].sh_type = SHT_STRTAB;
  sections[4].sh_name = 23, sections[4].sh_type = SHT_STRTAB;
  add(sections[2], symbols.data(), sizeof(symbols));
  add(sections[3], names.data(), names.size());
  add(sections[4], kSections.data(), kSections.size());
  sections[5].sh_name = 33, sections[5].sh_type = SHT_PROGBITS, sections[5].sh_flags = SHF_ALLOC;
  sections[5].sh_addr = reinterpret_cast<std::uintptr_t>(unwind.data());
  add(sections[5], unwind.data(), unwind.size());
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL, header.e_version = EV_CURRENT;
#if defined(__x86_64__)
  header.e_machine = EM_X86_64;
#else
  header.e_machine = EM_AARCH64;
#endif
  header.e_shoff = header.e_ehsize = sizeof(Elf64_Ehdr), header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = sections.size() - unwind.empty(), header.e_shstrndx = 4;
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), sections.data(), sizeof(sections));
  return file;
}

void tell_gdb(jit_code_entry& entry, bool is_new) {
  constexpr std::uint32_t kRegister = 1, kUnregister = 2;
  const std::lock_guard lock(mutex());
  jit_descriptor& all = __jit_debug_descriptor;
  if (is_new) {
    entry.next_entry = all.first_entry;
    if (entry.next_entry) entry.next_entry->prev_entry = &entry;
    all.first_entry = &entry;
  } else {
    (entry.prev_entry ? entry.prev_entry->next_entry : all.first_entry) = entry.next_entry;
    if (entry.next_entry) entry.next_entry->prev_entry = entry.prev_entry;
  }
  all.relevant_entry = &entry, all.action_flag = is_new ? kRegister : kUnregister;
  __jit_debug_register_code();
  all.relevant_entry = nullptr, all.action_flag = 0;
}

}  // namespace

struct CodeName::Object {
  Object(std::span<const std::byte> code, std::string_view name, std::span<const std::byte> unwind)
      : file(symbol_file(code, name, unwind)) {
    entry.symfile_addr = reinterpret_cast<const char*>(file.data()), entry.symfile_size = file.size();
    tell_gdb(entry, true);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { tell_gdb(entry, false); }

  std::vector<std::byte> file;
  jit_code_entry entry{};
};

bool names_code() { return wanted().perf || wanted().gdb; }

CodeName::CodeName() noexcept = default;
CodeName::CodeName(CodeName&&) noexcept = default;
CodeName& CodeName::operator=(CodeName&&) noexcept = default;
CodeName::~CodeName() = default;

CodeName::CodeName(std::span<const std::byte> code, std::string_view name, std::span<const std::byte> unwind) noexcept try {
  if (code.empty() || name.empty()) return;
  if (wanted().perf) add_to_map(code, name);
  if (wanted().gdb) object_ = std::make_unique<Object>(code, name, unwind);
} catch (...) {}  // NOLINT: no memory

}  // namespace onepass::runtime
