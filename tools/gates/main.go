// Command gates checks what docs/adr/0002 and docs/glossary.md promise of the code and that no
// linter checks: its size, the shape of its packages, and its vocabulary.
//
//	go run ./gates -root .. [size] [shape] [protocols] [glossary]
//
// Without a name every gate runs. Each finding is one line that says what is wrong, where, and
// which limit applies; the exit code is 1 if there is any. Packages that were over a limit when
// the gate was introduced are listed in limits.txt with the value they had: they may shrink and
// not grow, and the entry must go once the package meets the limit.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// finding is one violation of a gate.
type finding struct {
	gate, where, text string
}

func main() {
	root := flag.String("root", "..", "folder of the module that is checked")
	limits := flag.String("limits", "gates/limits.txt", "file with the values that may not grow")
	verbose := flag.Bool("v", false, "print the measured values, too")
	flag.Parse()
	known := map[string]func(*tree) ([]finding, error){
		"size": checkSize, "shape": checkShape, "protocols": checkProtocols, "glossary": checkGlossary,
	}
	names := flag.Args()
	if len(names) == 0 {
		for n := range known {
			names = append(names, n)
		}
		sort.Strings(names)
	}
	t, err := loadTree(*root, *limits)
	if err != nil {
		fail(err)
	}
	var found []finding
	for _, n := range names {
		gate, ok := known[n]
		if !ok {
			fail(fmt.Errorf("there is no gate %q; use size, shape, protocols or glossary", n))
		}
		f, err := gate(t)
		if err != nil {
			fail(err)
		}
		found = append(found, f...)
	}
	found = append(found, t.staleLimits(names)...)
	if *verbose {
		t.printMeasured()
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].where < found[j].where })
	for _, f := range found {
		fmt.Printf("%s: %s: %s\n", f.gate, f.where, f.text)
	}
	if len(found) > 0 {
		fmt.Printf("%d findings\n", len(found))
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gates:", err)
	os.Exit(2)
}

// tree is the checked module: its tracked files and the limits that may not grow.
type tree struct {
	root     string
	files    []string // relative, with slashes, sorted
	limits   map[string]int
	measured map[string]int // values over a general limit, by key
	used     map[string]bool
}

// loadTree lists the files that git tracks or would track below root.
func loadTree(root, limitsFile string) (*tree, error) {
	t := &tree{root: root, limits: map[string]int{}, measured: map[string]int{}, used: map[string]bool{}}
	out, err := exec.CommandContext(context.Background(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", root, err)
	}
	for _, name := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			t.files = append(t.files, name)
		}
	}
	sort.Strings(t.files)
	return t, t.readLimits(limitsFile)
}

// readLimits reads lines of the form "gate path value".
func (t *tree) readLimits(name string) error {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		var gate, path string
		var value int
		if _, err := fmt.Sscan(text, &gate, &path, &value); err != nil {
			return fmt.Errorf("%s:%d: want \"gate path value\": %w", name, n, err)
		}
		t.limits[gate+" "+path] = value
	}
	return lines.Err()
}

// over reports a value that exceeds both the general limit and the package's own entry.
func (t *tree) over(gate, where string, value, limit int, what string) []finding {
	if value <= limit {
		return nil
	}
	key := gate + " " + where
	t.measured[key] = value
	own, listed := t.limits[key]
	t.used[key] = listed
	if listed && value <= own {
		return nil
	}
	text := fmt.Sprintf("%d %s; the limit is %d", value, what, limit)
	if listed {
		text += fmt.Sprintf(", and limits.txt allows %d until it is met", own)
	}
	return []finding{{gate, where, text}}
}

// staleLimits reports entries of limits.txt that are no longer needed, or more than 2% too high.
func (t *tree) staleLimits(gates []string) []finding {
	var found []finding
	for key, value := range t.limits {
		gate, where, _ := strings.Cut(key, " ")
		ran := false
		for _, g := range gates {
			ran = ran || strings.HasPrefix(gate, g)
		}
		if !ran {
			continue
		}
		if !t.used[key] {
			found = append(found, finding{gate, where, "meets the limit now; remove it from tools/gates/limits.txt"})
		} else if now := t.measured[key]; now < value-value/50 {
			found = append(found, finding{gate, where, fmt.Sprintf("is down to %d; lower its entry (%d) in tools/gates/limits.txt", now, value)})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].where < found[j].where })
	return found
}

func (t *tree) printMeasured() {
	keys := make([]string, 0, len(t.measured))
	for k := range t.measured {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Println(k, t.measured[k])
	}
}

// production lists the hand-written Go files outside of tests, tools and third_party.
func (t *tree) production() []string {
	var files []string
	for _, f := range t.files {
		if strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, "_test.go") && !strings.HasSuffix(f, ".gen.go") && !isTestPackage(f) &&
			!hasFolder(f, "testdata") && !strings.HasPrefix(f, "tools/") && !strings.HasPrefix(f, "third_party/") && !strings.HasPrefix(f, "openapi/client/") {
			files = append(files, f)
		}
	}
	return files
}

// isTestPackage reports whether a file is of a package that only tests import, such as
// store/storetest.
func isTestPackage(path string) bool {
	return strings.HasSuffix(filepath.Dir(path), "test") || filepath.Base(filepath.Dir(path)) == "testkit"
}

func hasFolder(path, folder string) bool {
	return strings.HasPrefix(path, folder+"/") || strings.Contains(path, "/"+folder+"/")
}

func (t *tree) read(name string) (string, error) {
	b, err := fs.ReadFile(os.DirFS(t.root), name)
	return string(b), err
}
