#include <cstdio>

int main() {
  std::puts("filigree");
  return 0;
}
