// A loader for the ELF objects that `generate` makes. It places the sections in one block of executable memory and relocates them against
// each other. The bytes are not trusted: every offset, size and index is checked before use.
#include "compiler/kernel_object.h"

#include <elf.h>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/code_names.h"
#include "runtime/os.h"

namespace onepass::compiler {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr Elf64_Word kUnwindTable = 0x70000001;            // SHT_X86_64_UNWIND, which elf.h may lack
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // limit for one kernel

[[noreturn]] void fail(const std::string& what) { throw InternalError("kernel object: " + what); }

std::size_t align_up(std::size_t n, std::size_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }

// The bytes of the object, with bounds-checked reads.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  std::string_view part(std::uint64_t offset, std::uint64_t size, const char* what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail(fmt::format("{} reaches outside the file", what));
    return bytes_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  }
  template <class T> T read(std::uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, part(offset, sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  std::string_view bytes_;
};

std::string_view text_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) fail("a name reaches outside its table");
  const std::string_view rest = table.substr(static_cast<std::size_t>(offset));
  const std::size_t end = rest.find('\0');
  if (end == rest.npos) fail("a name has no terminating zero");
  return rest.substr(0, end);
}

struct Symbol {
  std::uint64_t address = 0;
  bool defined = false;
  std::string_view name;
};

class Loader {
 public:
  // `unwinds`: also loads the unwind tables.
  Loader(std::string_view object, bool unwinds) : bytes_(object), unwinds_(unwinds) {}

  os::ExecutableMemory load(KernelFunction& function) {
    read_sections();
    lay_out();
    if (total_ > kMostBytes) fail("it is larger than any kernel");
    memory_ = os::ExecutableMemory::allocate(std::max<std::size_t>(total_, 1));
    std::memset(memory_.data(), 0, memory_.size());
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (!placed_[i] || sections_[i].sh_type == SHT_NOBITS) continue;
      const std::string_view content = bytes_.part(sections_[i].sh_offset, sections_[i].sh_size, "a section");
      if (!content.empty()) std::memcpy(memory_.data() + *placed_[i], content.data(), content.size());
    }
    const Elf64_Shdr* symbol_table = nullptr;
    for (const Elf64_Shdr& s : sections_)
      if (s.sh_type == SHT_SYMTAB) {
        if (symbol_table) fail("it has two symbol tables");
        symbol_table = &s;
      }
    if (!symbol_table) fail("it has no symbol table");
    read_symbols(*symbol_table);
    for (const Elf64_Shdr& s : sections_)
      if (s.sh_type == SHT_RELA) relocate(s, static_cast<std::size_t>(symbol_table - sections_.data()));
      else if (s.sh_type == SHT_REL && target_placed(s)) fail("its relocations have no addends");
    if (!entry_) fail("it has no function `kernel`");
    if (unwind_) unwound_ = {memory_.data() + *placed_[*unwind_], static_cast<std::size_t>(sections_[*unwind_].sh_size)};
    memory_.finalize();
    function = reinterpret_cast<KernelFunction>(*entry_);
    return std::move(memory_);
  }

  // After load(): the section of the function `kernel`, and the unwind tables if they were loaded and exist.
  std::span<const std::byte> code() const { return code_; }
  std::span<const std::byte> unwind() const { return unwound_; }

 private:
  Bytes bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::string_view section_names_;
  std::vector<std::optional<std::size_t>> placed_;  // memory offset of each loaded section
  std::vector<Symbol> symbols_;
  std::optional<std::uint64_t> entry_;
  std::span<const std::byte> code_, unwound_;
  bool unwinds_;
  std::optional<std::size_t> unwind_;                  // section
  std::size_t total_ = 0, table_ = 0, table_end_ = 0;  // the address table for indirect relocations
  bool arm_ = false;
  os::ExecutableMemory memory_;

  void read_sections() {
    const auto header = bytes_.read<Elf64_Ehdr>(0, "the header");
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL)
      fail("the file is not a relocatable 64-bit ELF object");
#if defined(__x86_64__)
    constexpr int kMachine = EM_X86_64;
#else
    constexpr int kMachine = EM_AARCH64;
#endif
    if (header.e_machine != kMachine) fail(fmt::format("it is for another processor (ELF machine {})", header.e_machine));
    arm_ = header.e_machine == EM_AARCH64;
    if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0) fail("its section table is malformed");
    bytes_.part(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), "the section table");
    for (std::uint64_t i = 0; i < header.e_shnum; ++i)
      sections_.push_back(bytes_.read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr), "a section header"));
    if (header.e_shstrndx >= sections_.size() || sections_[header.e_shstrndx].sh_type != SHT_STRTAB) fail("it has no section names");
    section_names_ = bytes_.part(sections_[header.e_shstrndx].sh_offset, sections_[header.e_shstrndx].sh_size, "the section names");
  }

  bool target_placed(const Elf64_Shdr& s) const { return s.sh_info < placed_.size() && placed_[s.sh_info]; }

  void lay_out() {
    placed_.resize(sections_.size());
    std::uint64_t through_table = 0;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      const std::string_view name = text_at(section_names_, s.sh_name);
      const bool is_unwind = name == ".eh_frame" && (s.sh_type == SHT_PROGBITS || s.sh_type == kUnwindTable);
      if (!(s.sh_flags & SHF_ALLOC) || (is_unwind && !unwinds_) || name.starts_with(".note")) continue;
      if (s.sh_type != SHT_PROGBITS && s.sh_type != SHT_NOBITS && !is_unwind) continue;
      if ((s.sh_flags & SHF_WRITE) && s.sh_size != 0 && !name.starts_with(".data.rel.ro"))
        fail(fmt::format("section {} is writable", name));
      const std::uint64_t alignment = std::max<std::uint64_t>(s.sh_addralign, 1);
      if (!std::has_single_bit(alignment) || alignment > 4096) fail(fmt::format("section {} has an alignment of {}", name, alignment));
      if (s.sh_size > kMostBytes) fail(fmt::format("section {} is larger than any kernel", name));
      total_ = align_up(total_, static_cast<std::size_t>(alignment));
      placed_[i] = total_;
      total_ += static_cast<std::size_t>(s.sh_size);
      if (is_unwind) unwind_ = i;
      if (total_ > kMostBytes) fail("it is larger than any kernel");
    }
    for (const Elf64_Shdr& s : sections_)
      if (s.sh_type == SHT_RELA && target_placed(s)) through_table += s.sh_size / sizeof(Elf64_Rela);
    if (through_table > kMostBytes / 8) fail("it has too many relocations");
    table_ = align_up(total_, 8);
    if (!arm_) {  // at most one entry for each relocation; most objects need none
      bool any = false;
      for (const Elf64_Shdr& s : sections_) any |= s.sh_type == SHT_RELA && target_placed(s) && uses_table(s);
      if (any) total_ = table_ + static_cast<std::size_t>(through_table) * 8;
    }
    table_end_ = total_;
  }

  static bool is_table_relocation(std::uint32_t type) {
    return type == 9 || type == 41 || type == 42;
  }  // GOTPCREL, GOTPCRELX, REX_GOTPCRELX
  bool uses_table(const Elf64_Shdr& s) const {
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= s.sh_size; at += sizeof(Elf64_Rela))
      if (is_table_relocation(static_cast<std::uint32_t>(ELF64_R_TYPE(bytes_.read<Elf64_Rela>(s.sh_offset + at, "a relocation").r_info))))
        return true;
    return false;
  }

  std::uint64_t address_of(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(memory_.data()) + offset; }

  void read_symbols(const Elf64_Shdr& table) {
    if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_link >= sections_.size() || sections_[table.sh_link].sh_type != SHT_STRTAB)
      fail("its symbol table is malformed");
    const std::string_view names = bytes_.part(sections_[table.sh_link].sh_offset, sections_[table.sh_link].sh_size, "the symbol names");
    bytes_.part(table.sh_offset, table.sh_size, "the symbol table");
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto s = bytes_.read<Elf64_Sym>(table.sh_offset + at, "a symbol");
      Symbol symbol;
      symbol.name = text_at(names, s.st_name);
      if (s.st_shndx == SHN_ABS) {
        symbol.address = s.st_value;
        symbol.defined = true;
      } else if (s.st_shndx != SHN_UNDEF && s.st_shndx < sections_.size()) {
        if (s.st_value > sections_[s.st_shndx].sh_size) fail(fmt::format("symbol {} is outside its section", symbol.name));
        if (placed_[s.st_shndx]) {
          symbol.address = address_of(*placed_[s.st_shndx] + static_cast<std::size_t>(s.st_value));
          symbol.defined = true;
          const Elf64_Shdr& section = sections_[s.st_shndx];
          if (symbol.name == "kernel" && ELF64_ST_TYPE(s.st_info) == STT_FUNC && (section.sh_flags & SHF_EXECINSTR) &&
              s.st_value < section.sh_size) {
            entry_ = symbol.address;
            code_ = {memory_.data() + *placed_[s.st_shndx], static_cast<std::size_t>(section.sh_size)};
          }
        }
      }
      symbols_.push_back(symbol);
    }
  }

  // Returns the bytes that a relocation changes.
  std::byte* place(std::size_t section, std::uint64_t offset, std::size_t size) {
    const std::uint64_t room = sections_[section].sh_size;
    if (offset > room || size > room - offset) fail("a relocation is outside its section");
    return memory_.data() + *placed_[section] + static_cast<std::size_t>(offset);
  }
  template <class T> static void put(std::byte* at, T value) { std::memcpy(at, &value, sizeof(T)); }
  static std::int64_t within(std::int64_t value, int bits, const char* what) {
    const std::int64_t limit = std::int64_t{1} << (bits - 1);
    if (value < -limit || value >= limit) fail(fmt::format("a {} relocation does not reach its target", what));
    return value;
  }

  void relocate(const Elf64_Shdr& s, std::size_t symbol_table) {
    if (s.sh_info >= sections_.size()) fail("relocations refer to a section that does not exist");
    if (!placed_[s.sh_info]) return;
    if (s.sh_link != symbol_table || s.sh_entsize != sizeof(Elf64_Rela)) fail("a relocation table is malformed");
    bytes_.part(s.sh_offset, s.sh_size, "a relocation table");
    for (std::uint64_t at = 0; at + sizeof(Elf64_Rela) <= s.sh_size; at += sizeof(Elf64_Rela)) {
      const auto r = bytes_.read<Elf64_Rela>(s.sh_offset + at, "a relocation");
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(r.r_info));
      if (type == 0) continue;
      const std::uint64_t index = ELF64_R_SYM(r.r_info);
      if (index >= symbols_.size()) fail("a relocation names a symbol that does not exist");
      const Symbol& symbol = symbols_[static_cast<std::size_t>(index)];
      if (!symbol.defined) fail(fmt::format("undefined symbol {}", symbol.name.empty() ? "without a name" : symbol.name));
      const std::uint64_t target = symbol.address + static_cast<std::uint64_t>(r.r_addend);  // wraps, like addresses
      if (arm_) relocate_arm(type, s.sh_info, r.r_offset, target);
      else relocate_x86(type, s.sh_info, r.r_offset, target, symbol.address, r.r_addend);
    }
  }

  void relocate_x86(std::uint32_t type, std::size_t section, std::uint64_t offset, std::uint64_t target, std::uint64_t symbol,
                    std::int64_t addend) {
    const auto here = [&](std::byte* p) { return reinterpret_cast<std::uint64_t>(p); };
    switch (type) {
      case 1: return put(place(section, offset, 8), target);  // 64
      case 24: {                                              // PC64
        std::byte* const p = place(section, offset, 8);
        return put(p, target - here(p));
      }
      case 2:
      case 4: {  // PC32, PLT32
        std::byte* const p = place(section, offset, 4);
        return put(p, static_cast<std::int32_t>(within(static_cast<std::int64_t>(target - here(p)), 32, "32-bit relative")));
      }
      case 10: {  // 32
        std::byte* const p = place(section, offset, 4);
        if (target > std::numeric_limits<std::uint32_t>::max())
          fail("a 32-bit absolute relocation does not reach its target: the code is not position independent");
        return put(p, static_cast<std::uint32_t>(target));
      }
      case 11: {  // 32S
        std::byte* const p = place(section, offset, 4);
        return put(p, static_cast<std::int32_t>(within(static_cast<std::int64_t>(target), 32, "32-bit absolute")));
      }
      case 9:
      case 41:
      case 42: {  // through a new table entry
        std::byte* const p = place(section, offset, 4);
        if (table_ + 8 > table_end_) fail("too many relocations use the address table");
        put(memory_.data() + table_, symbol);
        const std::uint64_t entry = address_of(table_) + static_cast<std::uint64_t>(addend);
        table_ += 8;
        return put(p, static_cast<std::int32_t>(within(static_cast<std::int64_t>(entry - here(p)), 32, "32-bit relative")));
      }
      default: fail(fmt::format("unknown relocation type {}", type));
    }
  }

  void relocate_arm(std::uint32_t type, std::size_t section, std::uint64_t offset, std::uint64_t target) {
    if (type == 257) return put(place(section, offset, 8), target);  // ABS64
    if (type == 260) {                                               // PREL64
      std::byte* const p = place(section, offset, 8);
      return put(p, target - reinterpret_cast<std::uint64_t>(p));
    }
    std::byte* const p = place(section, offset, 4);
    const auto here = reinterpret_cast<std::uint64_t>(p);
    const auto relative = static_cast<std::int64_t>(target - here);
    std::uint32_t code;
    std::memcpy(&code, p, 4);
    // Sets a field of the instruction: `bits` bits of `value` at `shift`.
    const auto field = [&](std::uint64_t value, int bits, int shift) {
      const std::uint32_t mask = ((std::uint32_t{1} << bits) - 1) << shift;
      code = (code & ~mask) | (static_cast<std::uint32_t>(value) << shift & mask);
    };
    const auto scaled = [&](int log2) {  // low 12 bits of an address, in units of the access
      if (target & ((std::uint64_t{1} << log2) - 1)) fail("a load's target is not aligned");
      field((target & 0xfff) >> log2, 12, 10);
    };
    const auto branch = [&](int bits, int shift, const char* what) {
      if (relative & 3) fail("a branch target is not a multiple of 4");
      field(static_cast<std::uint64_t>(within(relative, bits + 2, what) >> 2), bits, shift);
    };
    const auto address = [&](std::int64_t value) {  // adr, adrp: the two low bits are separate
      field(static_cast<std::uint64_t>(value), 2, 29);
      field(static_cast<std::uint64_t>(value >> 2), 19, 5);
    };
    switch (type) {
      case 258:
        code = static_cast<std::uint32_t>(target);
        if (target >> 32) fail("a 32-bit absolute relocation does not reach its target");
        break;  // ABS32
      case 261: code = static_cast<std::uint32_t>(within(relative, 32, "PREL32")); break;
      case 273: branch(19, 5, "LD_PREL_LO19"); break;
      case 274: address(within(relative, 21, "ADR_PREL_LO21")); break;
      case 275:
      case 276: {
        const auto pages = static_cast<std::int64_t>((target & ~std::uint64_t{0xfff}) - (here & ~std::uint64_t{0xfff})) >> 12;
        address(within(pages, 21, "ADR_PREL_PG_HI21"));
        break;
      }
      case 277: field(target & 0xfff, 12, 10); break;  // ADD_ABS_LO12_NC
      case 278: scaled(0); break;
      case 284: scaled(1); break;
      case 285: scaled(2); break;
      case 286: scaled(3); break;
      case 299: scaled(4); break;
      case 279: branch(14, 5, "TSTBR14"); break;
      case 280: branch(19, 5, "CONDBR19"); break;
      case 282:
      case 283: branch(26, 0, "CALL26"); break;
      default: fail(fmt::format("unknown relocation type {}", type));
    }
    std::memcpy(p, &code, 4);
  }
};

class Loaded final : public KernelObject {
 public:
  Loaded(std::string_view object, std::string_view name) {
    Loader loader(object, !name.empty());
    memory_ = loader.load(function_);
    bytes_ = memory_.size();
    if (!name.empty()) name_ = runtime::CodeName(loader.code(), name, loader.unwind());
  }

 private:
  os::ExecutableMemory memory_;
  runtime::CodeName name_;
};

}  // namespace

std::shared_ptr<const KernelObject> KernelObject::load(std::string_view object, std::string_view name) {
  return std::make_shared<Loaded>(object, name);
}

}  // namespace onepass::compiler
