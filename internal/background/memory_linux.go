package background

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapFilePages unmaps the pages of the program and of files that are mapped for reading, such as a
// SQLite database. They stay in the page cache and are mapped again at their next use. Only mappings
// without private changes qualify: shared ones, and those of a program that is not relocated.
func unmapFilePages() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	program := fixedProgram()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end uintptr
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &start, &end, &mode); err != nil {
			continue
		}
		_, path, isFile := strings.Cut(lines.Text(), " /")
		if isFile && (mode == "r--s" || program != "" && "/"+path == program && (mode == "r-xp" || mode == "r--p")) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED) // only a hint
		}
	}
}

// fixedProgram returns the path of this program, "" if the loader relocates it.
func fixedProgram() string {
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil || file.Type != elf.ET_EXEC {
		return ""
	}
	return path
}

// MemoryLimit returns the memory limit of the process's control group and of those above it in bytes, 0
// for none.
func MemoryLimit() int64 { return memoryLimit("/") }

// memoryLimit reads the files of both versions of control groups below root.
func memoryLimit(root string) (limit int64) {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	paths := []string{"/"} // a container may see its own group as the root
	for line := range strings.Lines(string(groups)) {
		// hierarchy-ID:controllers:path
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && (parts[1] == "" || parts[1] == "memory") {
			for path := parts[2]; len(path) > 1; path = filepath.Dir(path) {
				paths = append(paths, path)
			}
		}
	}
	for _, path := range paths {
		for _, file := range []string{path + "/memory.max", "memory" + path + "/memory.limit_in_bytes"} {
			text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", file))
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && n < 1<<60 && (limit == 0 || n < limit) { // "max", or the largest number, is no limit
				limit = n
			}
		}
	}
	return limit
}
