package config

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Sources are the inputs of a configuration.
type Sources struct {
	// Flags are the command's, as registered by Flags; nil for none. Only flags that were set
	// count.
	Flags *pflag.FlagSet
	// Environ is the environment as "NAME=value", as os.Environ returns it.
	// An empty variable counts as not set.
	Environ []string
}

// Load reads the configuration. A flag overrides the environment, which overrides the file named by
// --config or COMET_CONFIG, which overrides the default. The error is an *Error that lists every
// problem of every source.
func Load(src Sources) (Config, error) {
	c := Default()
	c.file = configPath(src)
	var data []byte
	if c.file != "" {
		var err error
		if data, err = os.ReadFile(c.file); err != nil {
			return Config{}, &Error{Problems: []string{fmt.Sprintf("The configuration file cannot be read: %v.", err)}}
		}
	}
	env, problems := readEnviron(src.Environ)
	flags, flagProblems := readFlags(src.Flags)
	file, fileProblems := readFile(c.file, data)
	if problems = append(append(problems, flagProblems...), fileProblems...); len(problems) > 0 {
		return Config{}, &Error{Problems: problems}
	}
	maps.Copy(file, env)
	maps.Copy(file, flags)
	for _, s := range settings() {
		if v, ok := file[s.key]; ok {
			s.set(&c, v.value)
			c.origins[s.key] = v.origin
		}
	}
	return c, nil
}

// Default returns the configuration of a server without any settings.
func Default() Config {
	c := Config{origins: map[string]string{}}
	for _, s := range settings() {
		s.set(&c, s.def)
		c.origins[s.key] = "default"
	}
	return c
}

// Error lists the problems of a configuration, one sentence each.
type Error struct{ Problems []string }

// Error implements error.
func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }
