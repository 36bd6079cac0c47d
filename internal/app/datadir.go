package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/gofrs/flock"

	"comet/internal/auth"
	"comet/internal/config"
	"comet/internal/errs"
	"comet/models"
	"comet/store/seal"
	"comet/store/sqlitefile"
)

const lockFile = "comet.lock"

// errLocked is returned for a data directory that another process has locked.
var errLocked = errors.New("another comet already runs on the data directory")

// lockDir creates the data directory if it is missing, and locks it. Only one process can hold the
// lock; its file holds the id of the process.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory %s: %w; choose another with --data", dir, err)
	}
	f := flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory %s: %w; it must be writable, or choose another with --data", dir, err)
	}
	if !ok {
		return nil, fmt.Errorf("%w %s%s: stop it first, or choose another directory with --data", errLocked, dir, lockHolder(dir))
	}
	// The id is a hint for people: without it the lock holds as well.
	_ = os.WriteFile(f.Path(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	return f, nil
}

// lockHolder names the process that has locked a data directory, "" if it is unknown.
func lockHolder(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, lockFile))
	if pid, ok := strings.CutSuffix(string(data), "\n"); ok && err == nil {
		return " (process " + pid + ")"
	}
	return ""
}

// checkDatabase rejects an empty or missing database file in a data directory that a server has used:
// SQLite would make a new registry, and the loss of the old one would go unnoticed. A first start
// that was killed may leave an empty database too, but apart from the files of SQLite and the lock no other
// file: it writes the key and the admin token after the database.
func checkDatabase(cfg config.Config) error {
	dir, database := cfg.Data, sqlitefile.Path(cfg.Data)
	if _, err := os.Stat(database); errors.Is(err, fs.ErrNotExist) {
		for _, name := range []string{adminTokenFile, secretKeyFile} {
			configured := name == secretKeyFile && cfg.SecretKeyFile != "" // the file may exist before the first start
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil && !configured {
				return errs.New(errs.Conflict, "the database %s is missing, but its directory contains %s of an earlier server: restore a backup with \"comet restore FILE\", "+
					"remove %s and %s to start with a new registry, or set database_url if that server used PostgreSQL", database, name, adminTokenFile, secretKeyFile)
			}
		}
	}
	if info, err := os.Stat(database); err != nil || info.Size() > 0 {
		return nil //nolint:nilerr // the store reports a file that cannot be read
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if name := filepath.Base(database); e.Name() != lockFile && e.Name() != name && e.Name() != name+"-journal" && e.Name() != name+"-shm" {
			names = append(names, e.Name())
		}
	}
	if names = slices.DeleteFunc(names, func(name string) bool { return isEmptyFile(filepath.Join(dir, name)) }); len(names) == 0 {
		return nil
	}
	return errs.New(errs.Conflict, "the database %s is empty (0 bytes), but its directory contains %s of an earlier server: restore a backup with \"comet restore FILE --force\", "+
		"or move the directory away to start with a new registry", database, strings.Join(names[:min(len(names), 5)], ", "))
}

// diskProbe is the number of bytes that must fit on the disk of the data directory.
const diskProbe = 64 << 10

// checkDisk returns errs.Unavailable if a file of diskProbe bytes cannot be written to a directory.
func checkDisk(dir string) func(context.Context) error {
	return func(context.Context) error {
		f, err := os.CreateTemp(dir, ".disk-*")
		if err == nil {
			_, err = f.Write(make([]byte, diskProbe))
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		if err != nil {
			return errs.Wrap(errs.Unavailable, err, "the data directory cannot be written")
		}
		return nil
	}
}

func isEmptyFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

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

// writeSecret writes a secret to a file with mode 0600. Without force it does not
// replace a file. If it fails, no file contains the secret.
func writeSecret(path, secret string, force bool) (err error) {
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
	return publish(f.Name(), path, force)
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

// secretKeyFile holds the key of the database that the first start generates, inside the data directory.
const secretKeyFile = "secret.key"

// secretKeys returns the keys of the configured file, or else of the file in the data directory. If there
// is none, it returns a new key, which save writes there.
func secretKeys(cfg config.Config, log *slog.Logger) (keys *seal.Keyring, save func() error, err error) {
	path := cmp.Or(cfg.SecretKeyFile, filepath.Join(cfg.Data, secretKeyFile))
	if _, err := os.Lstat(path); cfg.SecretKeyFile == "" && errors.Is(err, fs.ErrNotExist) {
		key := seal.NewKey()
		keys, err := seal.Parse(key)
		return keys, sync.OnceValue(func() error {
			if cfg.DatabaseURL != "" {
				log.Warn("a key that encrypts secrets in the database was generated; keep a copy, and start other replicas with it as --secret-key-file", "file", path)
			}
			return writeSecret(path, key, false)
		}), err
	}
	keys, exposed, err := seal.Load(path)
	if exposed {
		log.Warn("other users can read the secret key file; change its mode to 0600", "file", path)
	}
	return keys, func() error { return nil }, err
}

// adminTokenFile holds the admin token of the first start, inside the data directory.
const adminTokenFile = "admin.token"

// ensureAdmin generates an admin token if none exists, and returns it. The token is written to its
// file before it is stored, so that it is not lost in a crash.
func ensureAdmin(ctx context.Context, tokens *auth.Auth, dir string) (string, error) {
	has, err := tokens.HasAdmin(ctx)
	if has || err != nil {
		return "", err
	}
	path := filepath.Join(dir, adminTokenFile)
	secret, inFile := unusedToken(ctx, tokens, path)
	if !inFile {
		if err := writeSecret(path, secret, true); err != nil {
			return "", fmt.Errorf("write the admin token to %s: %w", path, err)
		}
	}
	made, err := tokens.EnsureAdmin(ctx, secret, false)
	switch {
	case err != nil: // the file stays: the next start tries the same token
		return "", fmt.Errorf("store the admin token: %w", err)
	case !made: // another replica was first
		return "", os.Remove(path)
	}
	return secret, nil
}

// unusedToken returns the token in the file if it was never stored, otherwise a new one. A token
// that was stored may have been revoked and must not become valid again.
func unusedToken(ctx context.Context, tokens *auth.Auth, path string) (secret string, inFile bool) {
	fresh := auth.NewSecret()
	if _, err := tokens.Get(ctx, models.System(), auth.BootstrapTokenID); !errs.Is(err, errs.NotFound) {
		return fresh, false
	}
	content, err := os.ReadFile(path)
	if secret = strings.TrimSpace(string(content)); err != nil || len(secret) < len(fresh) {
		return fresh, false
	}
	return secret, true
}
