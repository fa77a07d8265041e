// Runs a fuzz target without libFuzzer, so that the plain test run covers it with any compiler:
//
//   TARGET RUNS LAST_INPUT_FILE CORPUS_FOLDER
//
// It feeds every corpus file, then RUNS mutations of them from a fixed seed; same corpus, same
// inputs, same order. A crash leaves the bytes that caused it in LAST_INPUT_FILE.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::string;
constexpr size_t kMaxInput = 64 * 1024;

std::vector<Bytes> ReadCorpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// One edit: flip a bit, overwrite, insert, erase, copy a span from another input, or cut the tail
// off. Interesting bytes are digits, signs and separators, which text formats react to.
void Mutate(Bytes& input, const std::vector<Bytes>& corpus, std::mt19937_64& rng) {
  static constexpr char kInteresting[] = "0123456789-+.,=: \n\"@\x00\xff\x7f";
  auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng() % n); };
  auto byte = [&] {
    return rng() % 2 ? kInteresting[below(sizeof(kInteresting) - 1)] : static_cast<char>(rng());
  };
  if (input.empty()) {
    input.push_back(byte());
    return;
  }
  size_t at = below(input.size());
  switch (rng() % 6) {
    case 0: input[at] = static_cast<char>(input[at] ^ (1 << rng() % 8)); break;
    case 1: input[at] = byte(); break;
    case 2: input.insert(at, 1 + below(8), byte()); break;
    case 3: input.erase(at, 1 + below(16)); break;
    case 4: {
      const Bytes& other = corpus[below(corpus.size())];
      size_t from = below(other.size());
      input.insert(at, other, from, below(64));
      break;
    }
    default: input.resize(at); break;
  }
  if (input.size() > kMaxInput) input.resize(kMaxInput);
}

const char* crash_file = nullptr;
const Bytes* current = nullptr;

// Only calls that are allowed in a signal handler.
void SaveInputAndDie(int signal) {
  const int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const ssize_t written = fd < 0 ? -1 : write(fd, current->data(), current->size());
  static constexpr char kSaved[] = "crashed; the input is in the file named as last input\n";
  static constexpr char kLost[] = "crashed; the input could not be saved\n";
  const bool saved = written == static_cast<ssize_t>(current->size());
  if (write(STDERR_FILENO, saved ? kSaved : kLost, saved ? sizeof(kSaved) - 1 : sizeof(kLost) - 1) <
      0)
    _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Try(const Bytes& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s RUNS LAST_INPUT_FILE CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  const long runs = std::strtol(argv[1], nullptr, 10);
  const std::vector<Bytes> corpus = ReadCorpus(argv[3]);
  if (corpus.empty() || runs <= 0) {
    std::fprintf(stderr, "error: no seed input in %s, or RUNS is not positive\n", argv[3]);
    return 1;
  }
  crash_file = argv[2];
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, SaveInputAndDie);
  for (const Bytes& input : corpus) Try(input);
  Try(Bytes());
  std::mt19937_64 rng(1);
  for (long i = 0; i < runs; ++i) {
    Bytes input = corpus[rng() % corpus.size()];
    for (auto edits = 1 + rng() % 4; edits > 0; --edits) Mutate(input, corpus, rng);
    Try(input);
  }
  std::printf("%zu seed inputs, %ld mutations, seed 1\n", corpus.size(), runs);
  return 0;
}
