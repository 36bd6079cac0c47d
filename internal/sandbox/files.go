package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// files are the files that a run may read. Every path is opened below an os.Root, which neither
// ".." nor a symbolic link can leave, even if they change meanwhile.
type files struct {
	granted   []grant
	protected func(path string) bool
}

var errDenied = errors.New("the code may not read this file")

// grant is a directory or a single file that may be read.
type grant struct {
	path string // absolute and clean
	root *os.Root
	file string // name in the root; "" allows everything below the root
}

// openFiles opens the paths of a request, as far as they are within the given bounds.
func openFiles(paths, bounds []string, protected func(path string) bool) (*files, *Failure) {
	all := &files{protected: protected}
	for _, path := range paths {
		path = filepath.Clean(path)
		known := false
		for _, bound := range bounds {
			bound = filepath.Clean(bound)
			switch {
			case within(path, bound):
				known = true
				all.open(path, bound)
			case within(bound, path):
				known = true
				all.open(bound, bound)
			}
		}
		if !known {
			all.close()
			return nil, &Failure{Name: PathDenied, Message: fmt.Sprintf("the server does not allow code to read %q", path)}
		}
	}
	return all, nil
}

// within reports whether path is bound or below it, by name.
func within(path, bound string) bool {
	rel, err := filepath.Rel(bound, path)
	return err == nil && filepath.IsLocal(rel)
}

// open grants a path within a bound; a missing path grants nothing.
func (f *files) open(path, bound string) {
	dir, only := bound, ""
	if info, err := os.Stat(bound); err != nil {
		return
	} else if !info.IsDir() {
		dir, only = filepath.Dir(bound), filepath.Base(bound)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	if path != bound {
		if only != "" {
			_ = root.Close()
			return // nothing is below a file
		}
		outer := root
		defer func() { _ = outer.Close() }()
		if root, only, err = openBelow(outer, path, bound); err != nil {
			return
		}
	}
	f.granted = append(f.granted, grant{path, root, only})
}

// openBelow opens a path below a root, as another root or as a single file.
func openBelow(outer *os.Root, path, bound string) (root *os.Root, only string, err error) {
	rel, err := filepath.Rel(bound, path)
	if err != nil {
		return nil, "", err
	}
	info, err := outer.Stat(rel)
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		rel, only = filepath.Dir(rel), filepath.Base(rel)
	}
	root, err = outer.OpenRoot(rel)
	return root, only, err
}

func (f *files) close() {
	for _, g := range f.granted {
		_ = g.root.Close()
	}
}

// read returns the text of a file, or errDenied for a path that is not granted, existing or not.
func (f *files) read(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", errDenied
	}
	path = filepath.Clean(path)
	if f.protected(path) {
		return "", errDenied
	}
	err := errDenied
	for _, g := range slices.Backward(f.granted) {
		if !within(path, g.path) {
			continue
		}
		var text string
		if text, err = g.read(path); err == nil {
			return text, nil
		}
	}
	return "", err
}

func (g grant) read(path string) (string, error) {
	rel, err := filepath.Rel(g.path, path)
	if err != nil {
		return "", errDenied
	}
	if g.file != "" {
		rel = g.file
		if info, err := g.root.Lstat(rel); err != nil || !info.Mode().IsRegular() {
			return "", errDenied // a symbolic link could lead to another file of the directory
		}
	}
	file, err := g.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for a named pipe
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("no such file: " + path)
	case err != nil:
		return "", errDenied // it leads out of the root, or the system denies access
	}
	defer func() { _ = file.Close() }()
	return readText(file)
}

// readText reads a regular file of at most maxFile bytes.
func readText(file *os.File) (string, error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return "", errors.New("the file cannot be read")
	case len(data) > maxFile:
		return "", fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), nil
}
