package main

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// addKeyFile is the flag that has lines signed. A key is named by its file: what stands in a
// command line other users of the machine can read.
func addKeyFile(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "key-file", "", "v5: sign what is said with the agent's key, which is in this `file`; - reads standard input")
}

// readKey reads a key from a file, or from standard input where its name is -. One line break
// at its end is no part of it.
func readKey(in io.Reader, path string) (string, error) {
	data, err := readInput(in, path)
	if err != nil {
		return "", err
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case !utf8.ValidString(key): // JSON would make another one of it
		return "", usagef("the key must be text in UTF-8")
	case key == "":
		return "", usagef("the file %s holds no key", path)
	}
	return key, nil
}
