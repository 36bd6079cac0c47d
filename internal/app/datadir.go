package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// dirLock is the lock on a data directory. Only one process can hold it.
type dirLock struct{ file *flock.Flock }

// errLocked is returned for a data directory that another process has locked.
var errLocked = errors.New("another comet already runs on the data directory")

// lockDir creates the data directory if it is missing, and locks it.
func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory %s: %w; choose another with --data", dir, err)
	}
	f := flock.New(filepath.Join(dir, "comet.lock"), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory %s: %w; it must be writable, or choose another with --data", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w %s: connect to it with --server, or choose another directory with --data", errLocked, dir)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) unlock() error { return l.file.Unlock() }

// inDir returns a function that reports whether a path leads to a file in a directory, also
// through symbolic links. A path to a missing file does not. comet opens no file that a client or
// a setting names in its data directory: the directory holds secrets, and a plain open and close
// of comet.db would drop the locks that SQLite holds on it.
func inDir(dir string) func(path string) bool {
	return func(path string) bool {
		bound, err := os.Stat(dir)
		if err != nil {
			return false
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return false
		}
		if path, err = filepath.Abs(path); err != nil {
			return false
		}
		for parent := filepath.Dir(path); ; path, parent = parent, filepath.Dir(parent) {
			if info, err := os.Stat(path); err == nil && os.SameFile(info, bound) {
				return true
			}
			if parent == path {
				return false
			}
		}
	}
}

// writeSecret writes a secret to a file with mode 0600. After an error the file does not exist.
func writeSecret(path, secret string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.WriteString(secret + "\n"); err != nil {
		return errors.Join(err, f.Close())
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes renames inside a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	// Some file systems cannot sync a directory.
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return errors.Join(err, d.Close())
	}
	return d.Close()
}
