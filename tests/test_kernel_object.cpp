// The object loader: sections are laid out and relocated, and bytes that are not an object are rejected without harm.
#include "compiler/kernel_object.h"

#include <elf.h>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/error.h"

using onepass::InternalError;
using onepass::compiler::KernelObject;

namespace {

// Writer of a small object: .text, .rodata, their relocations, symbols.
struct ObjectWriter {
  std::string text, constants;
  struct Relocation {
    std::uint64_t offset;
    std::uint32_t type;
    std::uint32_t symbol;  // 1: kernel, 2: the constants, 3: a function `helper` at offset `helper`, 4: undefined
    std::int64_t addend;
  };
  std::vector<Relocation> relocations;
  std::uint64_t helper = 0;
  std::string undefined = "missing_function";
#if defined(__x86_64__)
  std::uint16_t machine = EM_X86_64;
#else
  std::uint16_t machine = EM_AARCH64;
#endif

  std::string write() const {
    const std::string names = std::string("\0.text\0.rodata.cst8\0.rela.text\0.symtab\0.strtab\0.note.GNU-stack\0", 63);
    const auto name = [&](const char* n) {
      return static_cast<Elf64_Word>(names.find(std::string("\0", 1) + n + std::string("\0", 1)) + 1);
    };
    std::string strings("\0kernel\0helper\0", 15);
    const auto undefined_name = static_cast<Elf64_Word>(strings.size());
    strings += undefined + '\0';
    std::string out(sizeof(Elf64_Ehdr), '\0');
    std::vector<Elf64_Shdr> sections(1);
    std::memset(sections.data(), 0, sizeof(Elf64_Shdr));
    const auto section = [&](const char* n, std::uint32_t type, std::uint64_t flags, const std::string& bytes, std::uint64_t alignment,
                             std::uint32_t link, std::uint32_t info, std::uint64_t entry) {
      out.resize((out.size() + alignment - 1) / alignment * alignment);
      sections.push_back({name(n), type, flags, 0, out.size(), bytes.size(), link, info, alignment, entry});
      out += bytes;
    };
    section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, text, 16, 0, 0, 0);
    section(".rodata.cst8", SHT_PROGBITS, SHF_ALLOC | SHF_MERGE, constants, 8, 0, 0, 8);
    std::string rela;
    for (const Relocation& r : relocations) {
      const Elf64_Rela e{r.offset, ELF64_R_INFO(std::uint64_t{r.symbol}, std::uint64_t{r.type}), r.addend};
      rela.append(reinterpret_cast<const char*>(&e), sizeof e);
    }
    section(".rela.text", SHT_RELA, SHF_INFO_LINK, rela, 8, 4, 1, sizeof(Elf64_Rela));
    std::string symbols;
    const auto symbol = [&](Elf64_Word n, unsigned char info, Elf64_Section at, std::uint64_t value) {
      const Elf64_Sym s{n, info, 0, at, value, 0};
      symbols.append(reinterpret_cast<const char*>(&s), sizeof s);
    };
    symbol(0, 0, 0, 0);
    symbol(1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 1, 0);
    symbol(0, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 2, 0);
    symbol(8, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 1, helper);
    symbol(undefined_name, ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), SHN_UNDEF, 0);
    section(".symtab", SHT_SYMTAB, 0, symbols, 8, 5, 1, sizeof(Elf64_Sym));
    section(".strtab", SHT_STRTAB, 0, strings, 1, 0, 0, 0);
    section(".note.GNU-stack", SHT_STRTAB, 0, names, 1, 0, 0, 0);  // also the section names
    out.resize((out.size() + 7) / 8 * 8);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_shoff = out.size();
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<Elf64_Half>(sections.size());
    header.e_shstrndx = 6;
    std::memcpy(out.data(), &header, sizeof header);
    out.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Elf64_Shdr));
    return out;
  }
};

// Returns kernel(words, begin, end, scratch), which calls `helper` to load the constant and stores it to words[0].
ObjectWriter small_object() {
  ObjectWriter w;
  const std::uint64_t constant = 0x1122334455667788ull;
  w.constants.assign(reinterpret_cast<const char*>(&constant), 8);
#if defined(__x86_64__)
  // call helper; mov [rdi], rax; ret; helper: mov rax, [rip + constants]; ret
  w.text = std::string("\xe8\0\0\0\0\x48\x89\x07\xc3\x48\x8b\x05\0\0\0\0\xc3", 17);
  w.helper = 9;
  w.relocations = {{1, R_X86_64_PLT32, 3, -4}, {12, R_X86_64_PC32, 2, -4}};
#else
  // mov x9, x30; bl helper; str x10, [x0]; ret x9; helper: adrp x10, constants; ldr x10, [x10, :lo12:constants]; ret
  const std::uint32_t code[] = {0xaa1e03e9, 0x94000000, 0xf900000a, 0xd65f0120, 0x9000000a, 0xf940014a, 0xd65f03c0};
  w.text.assign(reinterpret_cast<const char*>(code), sizeof code);
  w.helper = 16;
  w.relocations = {{4, R_AARCH64_CALL26, 3, 0}, {16, R_AARCH64_ADR_PREL_PG_HI21, 2, 0}, {20, R_AARCH64_LDST64_ABS_LO12_NC, 2, 0}};
#endif
  return w;
}

std::string message_of(const std::string& object) {
  try {
    KernelObject::load(object);
  } catch (const InternalError& error) { return error.what(); }
  return "loaded";
}

}  // namespace

TEST_CASE("kernel object: code reads its constants and calls its functions", "[kernel_object]") {
  const auto kernel = KernelObject::load(small_object().write());
  CHECK(kernel->bytes() > 0);
  std::int64_t word = 0;
  kernel->function()(&word, 0, 1, nullptr);
  CHECK(word == 0x1122334455667788);
}

#if defined(__x86_64__)
TEST_CASE("kernel object: an address through a table", "[kernel_object]") {
  // mov rax, [rip + entry of constants]; mov rax, [rax]; mov [rdi], rax; ret
  ObjectWriter w = small_object();
  w.text = std::string("\x48\x8b\x05\0\0\0\0\x48\x8b\x00\x48\x89\x07\xc3", 14);
  w.helper = 0;
  w.relocations = {{3, R_X86_64_REX_GOTPCRELX, 2, -4}};
  const auto kernel = KernelObject::load(w.write());
  std::int64_t word = 0;
  kernel->function()(&word, 0, 1, nullptr);
  CHECK(word == 0x1122334455667788);
}
#endif

TEST_CASE("kernel object: errors name the fault", "[kernel_object]") {
  ObjectWriter w = small_object();
  w.relocations[0].symbol = 4;
  CHECK_THAT(message_of(w.write()), Catch::Contains("undefined symbol missing_function"));
  w = small_object();
  w.relocations[0].type = 200;
  CHECK_THAT(message_of(w.write()), Catch::Contains("relocation type 200"));
  w = small_object();
  w.relocations[0].offset = w.text.size() - 2;
  CHECK_THAT(message_of(w.write()), Catch::Contains("outside its section"));
  w = small_object();
  w.relocations[0].symbol = 77;
  CHECK_THAT(message_of(w.write()), Catch::Contains("does not exist"));
  w = small_object();
  w.relocations[0].addend = std::int64_t{1} << 40;
  CHECK_THAT(message_of(w.write()), Catch::Contains("does not reach"));
  w = small_object();
  w.machine = EM_386;
  CHECK_THAT(message_of(w.write()), Catch::Contains("another processor"));
  CHECK_THAT(message_of(""), Catch::Contains("header"));
  CHECK_THAT(message_of(std::string(200, 'x')), Catch::Contains("ELF"));
}

TEST_CASE("kernel object: damaged bytes are rejected or loaded, without bad memory accesses", "[kernel_object]") {
  const std::string whole = small_object().write();
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // a block of exactly that size, so that the sanitizer finds reads past the end
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    try {
      KernelObject::load({cut.data(), cut.size()});
    } catch (const InternalError&) { ++refused; }
  }
  CHECK(refused == static_cast<int>(whole.size()));  // the section table is last
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<char> damaged(whole.begin(), whole.end());
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int c = 0; c < changes; ++c) {
      const std::size_t at = random() % damaged.size();
      if (random() % 2) damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      else damaged[at] = static_cast<char>(random());
    }
    try {
      KernelObject::load({damaged.data(), damaged.size()});  // loaded code is not run
    } catch (const InternalError&) {}
  }
  SUCCEED();
}
