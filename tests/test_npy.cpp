// .npy files: files of NumPy are read, damaged files give an error, and outputs appear whole or not at all.
#include "onepass/npy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "onepass/error.h"
#include "runtime/memory.h"
#include "runtime/os_output.h"

using namespace onepass;
using Catch::Matchers::Contains;

namespace {

/// Temporary folder of a test, deleted with its files.
struct Folder {
  std::string path;
  Folder() {
    const char* const parent = std::getenv("TMPDIR");
    path = std::string(parent ? parent : "/tmp") + "/onepass-npy-XXXXXX";
    if (!mkdtemp(path.data())) std::abort();
  }
  ~Folder() {
    for (const std::string& name : names()) std::remove((path + "/" + name).c_str());
    rmdir(path.c_str());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    DIR* const folder = opendir(path.c_str());
    while (const dirent* const entry = readdir(folder))
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) result.push_back(entry->d_name);
    closedir(folder);
    return result;
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Returns a file as NumPy writes it. `padding` aligns the elements; 0 adds none.
std::string npy(const std::string& dictionary, const std::string& elements, int version = 1, std::size_t padding = 64) {
  std::string header = dictionary;
  const std::size_t before = version == 1 ? 10 : 12;
  while (padding && (before + header.size() + 1) % padding != 0) header += ' ';
  header += '\n';
  std::string result = "\x93NUMPY";
  result += static_cast<char>(version);
  result += '\0';
  for (std::size_t i = 0; i < before - 8; ++i) result += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return result + header + elements;
}

std::string dictionary(const std::string& descr, const std::string& shape, const char* order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

template <class T> std::string bytes_of(std::vector<T> values, bool swapped = false) {
  std::string result;
  for (const T& value : values) {
    std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
    result += swapped ? std::string(bytes.rbegin(), bytes.rend()) : bytes;
  }
  return result;
}

std::vector<std::int64_t> list(std::span<const std::int64_t> span) { return {span.begin(), span.end()}; }
using List = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("npy: every version, byte order and alignment", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const std::vector<float> values{1, -2.5, 3e20f, 0, 5, 6};
  for (const int version : {1, 2, 3})
    for (const bool swapped : {false, true})
      for (const std::size_t padding : {0, 16, 64}) {
        CAPTURE(version, swapped, padding);
        put(path, npy(dictionary(swapped ? ">f4" : "<f4", "(2, 3)"), bytes_of(values, swapped), version, padding));
        const Array array = load_npy(path);
        CHECK(array.dtype() == f32);
        CHECK(list(array.shape()) == List{2, 3});
        CHECK(array.to_vector<float>() == values);
        CHECK_FALSE(array.is_read_only());
      }
}

TEST_CASE("npy: every dtype is written and read back", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const auto check = [&](const char* descr, DType dtype, auto value, bool little = true) {
    using T = decltype(value);
    CAPTURE(descr);
    put(path, npy(dictionary(descr, "(2,)"), bytes_of(std::vector<T>{value, T(1)}, !little)));
    Array array = load_npy(path);
    CHECK(array.dtype() == dtype);
    if (dtype == f16) array = array.bitcast(u16);
    CHECK(array.template at<T>({0}) == value);
    CHECK(array.template at<T>({1}) == T(1));
    save_npy(path, array);
    const Array again = load_npy(path);
    CHECK(again.template to_vector<T>() == array.template to_vector<T>());
  };
  check("|i1", i8, std::int8_t{-7});
  check("|u1", u8, std::uint8_t{200});
  check("u1", u8, std::uint8_t{200});
  check("<i2", i16, std::int16_t{-300});
  check(">i2", i16, std::int16_t{-300}, false);
  check("<u2", u16, std::uint16_t{50'000});
  check("<i4", i32, std::int32_t{-70'000});
  check("=i4", i32, std::int32_t{-70'000});
  check("i4", i32, std::int32_t{-70'000});
  check(">u4", u32, std::uint32_t{0x01020304}, false);
  check("<i8", i64, INT64_MIN + 5);
  check(">i8", i64, INT64_MIN + 5, false);
  check("<u8", u64, UINT64_MAX - 5);
  check("<f2", f16, std::uint16_t{0x3c01});
  check(">f2", f16, std::uint16_t{0x3c01}, false);
  check("<f8", f64, 1.0 / 3);
  check(">f8", f64, 1.0 / 3, false);

  for (const char* const descr : {"|b1", "?", "<b1", ">b1"}) {
    put(path, npy(dictionary(descr, "(4,)"), std::string("\0\1\2\xff", 4)));
    CHECK(load_npy(path).to_vector<bool>() == std::vector<bool>{false, true, true, true});
    CHECK(load_npy(path).bitcast(u8).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{0, 1, 1, 1});
  }
}

TEST_CASE("npy: saved files equal NumPy's", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  save_npy(path, Array::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}).transpose());
  const std::string text = get(path);
  CHECK(text.substr(0, 8) == std::string("\x93NUMPY\1\0", 8));
  CHECK(text.substr(10, 60) == "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } ");
  CHECK(text.size() == 128 + 24);
  CHECK(text[127] == '\n');
  CHECK(text.substr(128) == bytes_of(std::vector<float>{1, 4, 2, 5, 3, 6}));
  save_npy(path, Array::scalar(true));
  CHECK_THAT(get(path), Contains("'descr': '|b1'") && Contains("'shape': ()"));
  CHECK(load_npy(path).item<bool>());
  save_npy(path, Array::zeros({5}, bf16));
  CHECK_THAT(get(path), Contains("'<u2'") && Contains("(5,)"));
  CHECK(load_npy(path).bitcast(bf16).size() == 5);
  save_npy(path, Array::zeros({0, 3}, f16));
  CHECK(list(load_npy(path).shape()) == List{0, 3});
  save_npy(path, Array::zeros(List(32, 1), u8));
  CHECK(load_npy(path).rank() == 32);
  CHECK_THROWS_AS(save_npy(path, Array()), ValueError);
  CHECK(load_npy(path).rank() == 32);  // the file is unchanged
}

TEST_CASE("npy: Fortran order and empty arrays", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  put(path, npy(dictionary("<i4", "(2, 3)", "True"), bytes_of(std::vector<int>{0, 1, 2, 3, 4, 5})));
  const Array array = load_npy(path);
  CHECK(list(array.shape()) == List{2, 3});
  CHECK(list(array.strides()) == List{1, 2});
  CHECK(array.to_vector<int>() == std::vector<int>{0, 2, 4, 1, 3, 5});
  put(path, npy(dictionary(">i4", "(2, 3)", "True"), bytes_of(std::vector<int>{0, 1, 2, 3, 4, 5}, true)));
  CHECK(load_npy(path).to_vector<int>() == array.to_vector<int>());
  put(path, npy(dictionary("<f8", "()"), bytes_of(std::vector<double>{4})));
  CHECK(load_npy(path).item<double>() == 4);
  put(path, npy(dictionary("<f8", "(0, 5)", "True"), ""));
  CHECK(list(load_npy(path).shape()) == List{0, 5});
}

TEST_CASE("npy: headers of other writers", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy", one = bytes_of(std::vector<float>{3});
  for (const char* const text : {
           "{\"shape\":(1,),\"descr\":\"<f4\",\"fortran_order\":False}",
           "{'fortran_order':True,'descr':'<f4','shape':(1L,)}",
           "  { 'descr' : '<f4' ,\t'fortran_order' : False , 'shape' : ( 1 , ) } ",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1)}",
       }) {
    put(path, npy(text, one));
    CHECK(load_npy(path).item<float>() == 3);
  }
}

TEST_CASE("npy: writes to a large file's array leave the file unchanged, and vice versa", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  std::vector<float> values(1 << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  save_npy(path, Array::wrap(values, {1024, 1024}));
  const std::int64_t before = memory::statistics().allocated_ever;
  {
    const Array array = load_npy(path);
    CHECK(memory::statistics().allocated_ever - before < 10'000);  // no copy
    CHECK(array.to_vector<float>() == values);
    array.span<float>()[5] = -1;
    CHECK(load_npy(path).at<float>({0, 5}) == 5);
    save_npy(path, array.transpose());  // over the file that was read
    CHECK(array.at<float>({0, 6}) == 6);
    std::filesystem::resize_file(path, 100);  // a mapping would end the process
    CHECK(array.at<float>({1023, 1023}) == (1 << 20) - 1);
    save_npy(path, array.transpose());
  }
  CHECK(load_npy(path).at<float>({5, 0}) == -1);
}

TEST_CASE("npy: a damaged file is an error that names it", "[npy]") {
  const Folder folder;
  const std::string path = folder / "bad.npy";
  const std::string six = bytes_of(std::vector<float>(6));
  const auto expect = [&](const std::string& bytes, const char* why) {
    CAPTURE(why);
    put(path, bytes);
    CHECK_THROWS_AS(load_npy(path), IoError);
    CHECK_THROWS_WITH(load_npy(path), Contains("load_npy: ") && Contains("bad.npy: ") && Contains(why));
  };
  expect("", "is not a .npy file");
  expect("P6 640 480", "is not a .npy file");
  expect("\x93NUMPY", "cut off");
  expect(std::string("\x93NUMPY\1\0\1", 9), "cut off");
  expect(std::string("\x93NUMPY\2\0\1\0", 10), "cut off");
  expect(std::string("\x93NUMPY\4\0\1\0  ", 12), "format 4.0");
  expect(std::string("\x93NUMPY\1\0\xff\xff{}", 12), "is cut off: its header should have 65535 bytes");
  expect(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), "4294967295");
  expect(npy(dictionary("<f4", "(2, 3)"), six.substr(1)), "has 23 bytes of elements, but its header needs 24");
  expect(npy(dictionary("<f4", "(2, 3)"), six + "x"), "has 25 bytes of elements, but its header needs 24");
  expect(npy(dictionary("<f4", "(2, -3)"), six), "negative length");
  expect(npy(dictionary("<f4", "(99999999999999999999,)"), six), "more than 64 bits");
  expect(npy(dictionary("<f4", "(4611686018427387904, 4)"), six), "more bytes than a 64-bit address can count");
  expect(npy(dictionary("<f4", "(0, 4611686018427387904, 4)"), ""), "more bytes than a 64-bit address can count");
  expect(npy(dictionary("<f4", "(1000000000000,)"), six), "its header needs 4000000000000");
  std::string ones;
  for (int i = 0; i < 33; ++i) ones += "1,";
  expect(npy(dictionary("<f4", "(" + ones + ")"), six), "more than 32 axes");
  for (const char* const descr : {"<f3", "<c8", "|S4", "<U2", "|O", "<M8[ns]", "|V2", "<f16", "", "f", "<", "|f4", "<i", "<i44", "<b2"})
    expect(npy(dictionary(descr, "(6,)"), six), "is not supported; onepass reads");
  expect(npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,)}", six), "structures");
  expect(npy("{'fortran_order': False, 'shape': (6,)}", six), "no 'descr'");
  expect(npy("{'descr': '<f4', 'shape': (6,)}", six), "no 'fortran_order'");
  expect(npy("{'descr': '<f4', 'fortran_order': False}", six), "no 'shape'");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'shape': (6,)}", six), "'shape' twice");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'extra': 1}", six), "unknown key 'extra'");
  expect(npy("{'descr': '<f4', 'fortran_order': false, 'shape': (6,)}", six), "neither True nor False");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} 1", six), "text after its end");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': [6]}", six), "'(' is missing");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", six), "not a tuple of integers");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6 6)}", six), "')' is missing");
  expect(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)", six), "'}' is missing");
  expect(npy("{'descr': '<f4", six), "unterminated string");
  expect(npy("{", six), "a key is missing");
  expect(npy("", six), "'{' is missing");

  CHECK_THROWS_WITH(load_npy(folder / "none.npy"), Contains("none.npy: cannot be opened: No such file"));
  CHECK_THROWS_WITH(load_npy(folder.path), Contains("is a folder"));
  CHECK_THROWS_WITH(load_npy("/dev/null"), Contains("not a regular file"));
  CHECK_THROWS_AS(load_npy(std::string("a\0b", 3)), IoError);
  CHECK_THROWS_AS(load_npy(""), IoError);
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(load_npy(folder / "pipe"), Contains("not a regular file"));  // without blocking
}

TEST_CASE("npy: random damage causes at most an IoError", "[npy]") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const std::string good = npy(dictionary("<f4", "(2, 3)"), bytes_of(std::vector<float>(6)), 2);
  std::mt19937 random(11);
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    for (unsigned k = random() % 3 + 1; k-- > 0;) {
      const std::size_t at = random() % 70;  // magic, version, length, dictionary
      switch (random() % 3) {
        case 0: bad[at] = static_cast<char>(random()); break;
        case 1: bad.erase(at, random() % 4); break;
        default: bad.insert(at, 1, "0123456789,(){}'<>|-: "[random() % 22]);
      }
    }
    if (random() % 8 == 0) bad.resize(random() % bad.size());
    put(path, bad);
    try {
      const Array array = load_npy(path);
      (void)array.copy();
      ++read;
    } catch (const IoError&) {}
  }
  CHECK(read > 0);  // some damage is harmless: blanks, another dtype of the same size
  CHECK(read < 1500);
}

TEST_CASE("npy: a file appears whole or not at all", "[npy]") {
  const Folder folder;
  const Array array = Array::full({100'000}, 1, f32);
  save_npy(folder / "a.npy", array);
  CHECK(folder.names() == std::vector<std::string>{"a.npy"});
  struct stat status;
  const mode_t mask = umask(0);
  umask(mask);
  REQUIRE(stat((folder / "a.npy").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == (0666 & ~mask));
  // A replaced file keeps its permissions; a link stays and its target is written.
  REQUIRE(chmod((folder / "a.npy").c_str(), 0640) == 0);
  REQUIRE(symlink("a.npy", (folder / "link.npy").c_str()) == 0);
  save_npy(folder / "link.npy", Array::scalar(7));
  REQUIRE(lstat((folder / "link.npy").c_str(), &status) == 0);
  CHECK(S_ISLNK(status.st_mode));
  REQUIRE(stat((folder / "a.npy").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
  CHECK(load_npy(folder / "a.npy").item<int>() == 7);

  CHECK_THROWS_WITH(save_npy(folder / "no/such/a.npy", array), Contains("no/such/a.npy: cannot be written: No such file"));
  CHECK_THROWS_WITH(save_npy(folder.path, array), Contains("cannot be written: Is a directory"));
  CHECK_THROWS_WITH(save_npy("", array), Contains("empty"));
  save_npy("/dev/null", array);  // written to, not replaced
  REQUIRE(stat("/dev/null", &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  CHECK_THROWS_WITH(save_npy("/dev/full", array), Contains("/dev/full: cannot be written: No space left"));

  // A full disk, simulated by a limit on file sizes.
  const std::string before = get(folder / "a.npy");
  rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 4096;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_WITH(save_npy(folder / "a.npy", array), Contains("a.npy: cannot be written: File too large"));
  CHECK_THROWS_AS(save_npy(folder / "b.npy", array), IoError);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  CHECK(get(folder / "a.npy") == before);
  CHECK(folder.names().size() == 2);  // a.npy, link.npy: no b.npy, no temporary file
}

TEST_CASE("npy: staged files appear together or not at all", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  {
    StagedFiles files;
    files.add(folder / "a.npy", array);
    files.add(folder / "b.npy", array);
    CHECK(load_npy(folder / folder.names()[0]).size() == 10);  // a complete temporary file
    CHECK(access((folder / "a.npy").c_str(), F_OK) != 0);
    files.commit();
  }
  CHECK(folder.names().size() == 2);
  CHECK(load_npy(folder / "b.npy").size() == 10);
  {
    StagedFiles files;
    files.add(folder / "a.npy", Array::scalar(1.0f));
    CHECK_THROWS_AS(files.add(folder / "no/c.npy", array), IoError);
  }
  CHECK(load_npy(folder / "a.npy").size() == 10);
  {
    StagedFiles files;
    files.add(folder / "a.npy", Array::scalar(1.0f));
    files.add(folder / "." + "/a.npy", Array::scalar(2.0f));
    CHECK_THROWS_WITH(files.commit(), Contains("two outputs"));
  }
  CHECK(load_npy(folder / "a.npy").size() == 10);
  {
    // The last rename fails, because its destination has become a folder. Earlier renames are undone.
    StagedFiles files;
    files.add(folder / "a.npy", Array::scalar(1.0f));
    files.add(folder / "new.npy", Array::scalar(1.0f));
    files.add(folder / "c.npy", Array::scalar(1.0f));
    REQUIRE(mkdir((folder / "c.npy").c_str(), 0700) == 0);
    CHECK_THROWS_WITH(files.commit(), Contains("c.npy: cannot be renamed to its final name: Is a directory"));
    rmdir((folder / "c.npy").c_str());
  }
  CHECK(load_npy(folder / "a.npy").size() == 10);
  CHECK(access((folder / "new.npy").c_str(), F_OK) != 0);
  CHECK(folder.names().size() == 2);
}

TEST_CASE("npy: two paths of one file are recognized, through any links and folders", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  REQUIRE(symlink("new.npy", (folder / "dangling.npy").c_str()) == 0);
  for (const char* const other : {"./new.npy", "dangling.npy"}) {
    StagedFiles files;
    files.add(folder / "new.npy", array);
    files.add(folder / other, array);
    CHECK_THROWS_WITH(files.commit(), Contains("two outputs have this file name"));
  }
  save_npy(folder / "dangling.npy", array);  // the link stays and its target is created
  struct stat status;
  CHECK(lstat((folder / "dangling.npy").c_str(), &status) == 0);
  CHECK(S_ISLNK(status.st_mode));
  CHECK(load_npy(folder / "new.npy").size() == 10);
  // Another hard link keeps the old contents.
  REQUIRE(link((folder / "new.npy").c_str(), (folder / "other.npy").c_str()) == 0);
  save_npy(folder / "new.npy", Array::scalar(1.0f));
  CHECK(load_npy(folder / "other.npy").size() == 10);
  CHECK(folder.names().size() == 3);
  REQUIRE(symlink("loop.npy", (folder / "loop.npy").c_str()) == 0);
  CHECK_THROWS_WITH(save_npy(folder / "loop.npy", array), Contains("Too many levels of symbolic links"));
  CHECK_THROWS_WITH(save_npy(folder / std::string(300, 'n'), array), Contains("File name too long"));
  CHECK_THROWS_WITH(save_npy(folder / "", array), Contains("Is a directory"));
}

TEST_CASE("npy: a replaced file keeps its mode, owner and group", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  put(folder / "a.npy", "before");
  REQUIRE(chmod((folder / "a.npy").c_str(), 0640) == 0);
  const bool root = geteuid() == 0;
  if (root) REQUIRE(chown((folder / "a.npy").c_str(), 12345, 23456) == 0);
  save_npy(folder / "a.npy", array);
  struct stat status;
  REQUIRE(stat((folder / "a.npy").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);
  CHECK(status.st_uid == (root ? 12345 : geteuid()));
  if (root) CHECK(status.st_gid == 23456);
}

TEST_CASE("npy: pipes, devices and open files are written in place, after all others", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  // An open file named by its descriptor: the bytes are written at its current position, and the file is not replaced.
  const int file = open((folder / "open.npy").c_str(), O_RDWR | O_CREAT, 0600);
  REQUIRE(file >= 0);
  REQUIRE(write(file, "before", 6) == 6);
  const auto status_of = [&](const std::string& path) {
    struct stat status {};
    CHECK(stat(path.c_str(), &status) == 0);
    return status;
  };
  const ino_t inode = status_of(folder / "open.npy").st_ino;
  const std::string ways[] = {"/dev/fd/", "/proc/self/fd/", "/proc/" + std::to_string(getpid()) + "/fd/"};
  for (const std::string& way : ways) {
    REQUIRE(ftruncate(file, 6) == 0);
    REQUIRE(lseek(file, 6, SEEK_SET) == 6);
    save_npy(way + std::to_string(file), array);
    CHECK(status_of(folder / "open.npy").st_ino == inode);
    CHECK(get(folder / "open.npy").substr(0, 12) == "before\x93NUMPY");
    CHECK(status_of(folder / "open.npy").st_size == 6 + 128 + 40);
  }
  REQUIRE(symlink(("/dev/fd/" + std::to_string(file)).c_str(), (folder / "link.npy").c_str()) == 0);
  save_npy(folder / "link.npy", array);
  CHECK(status_of(folder / "open.npy").st_size == 6 + 2 * (128 + 40));
  {
    StagedFiles files;  // the descriptor and the path are one file
    files.add("/dev/fd/" + std::to_string(file), array);
    files.add(folder / "open.npy", array);
    CHECK_THROWS_WITH(files.commit(), Contains("two outputs"));
  }
  CHECK(status_of(folder / "open.npy").st_size == 6 + 2 * (128 + 40));
  CHECK_THROWS_WITH(save_npy("/dev/fd/987", array), Contains("/dev/fd/987: cannot be written: Bad file descriptor"));
  const int readable = open((folder / "open.npy").c_str(), O_RDONLY);
  CHECK_THROWS_WITH(save_npy("/dev/fd/" + std::to_string(readable), array), Contains("Bad file descriptor"));
  close(readable);
  close(file);
  // A named pipe together with an output that fails: neither the pipe nor the file is written.
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int reader = open((folder / "pipe").c_str(), O_RDWR);
  {
    StagedFiles files;
    files.add(folder / "pipe", array);
    CHECK_THROWS_AS(files.add(folder / "no/c.npy", array), IoError);
  }
  char bytes[1024];
  fcntl(reader, F_SETFL, O_NONBLOCK);
  CHECK(read(reader, bytes, sizeof bytes) < 0);
  save_npy(folder / "pipe", array);
  CHECK(read(reader, bytes, sizeof bytes) == 128 + 40);
  CHECK(S_ISFIFO(status_of(folder / "pipe").st_mode));
  close(reader);
  // If one output cannot be written, no output is written.
  {
    StagedFiles files;
    files.add(folder / "a.npy", array);
    files.add("/dev/full", array);
    CHECK_THROWS_WITH(files.commit(), Contains("/dev/full: cannot be written: No space left on device"));
  }
  CHECK(folder.names().size() == 3);  // open.npy, link.npy, pipe
  save_npy("/dev/null", array);
}

namespace {
int syncs = 0;
}
// Replaces the system's function.
extern "C" int fsync(int descriptor) {
  ++syncs;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

TEST_CASE("npy: bytes are on disk before the name, unless disabled", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  syncs = 0;
  save_npy(folder / "a.npy", array);
  CHECK(syncs == 1);
  save_npy(folder / "a.npy", array, {.sync = false});
  CHECK(syncs == 1);
  for (const bool sync : {true, false}) {
    StagedFiles files({.sync = sync});
    files.add(folder / "a.npy", array);
    files.add(folder / "b.npy", array);
    files.add("/dev/null", array);
    files.commit();
    CHECK(syncs == 3);
  }
}

TEST_CASE("npy: a signal handler finds only the temporary files", "[npy]") {
  const Folder folder;
  const Array array = Array::full({10}, 2, f32);
  save_npy(folder / "a.npy", array);
  {
    StagedFiles files;
    for (const char* const name : {"a.npy", "b.npy", "c.npy"}) files.add(folder / name, array);
    CHECK(folder.names().size() == 4);
    os::remove_temporaries();
    CHECK(folder.names() == std::vector<std::string>{"a.npy"});
    CHECK_THROWS_AS(files.commit(), IoError);
  }
  CHECK(folder.names() == std::vector<std::string>{"a.npy"});
  save_npy(folder / "b.npy", array);
  os::remove_temporaries();
  CHECK(folder.names().size() == 2);
}
