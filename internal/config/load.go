package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Sources are the inputs of a configuration.
type Sources struct {
	// Flags are the command's, as registered by Flags; nil for none. Only flags that were set count.
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
	env, flags, file := readEnviron(src.Environ), readFlags(src.Flags), readFile(c.file, data)
	if problems := slices.Concat(env.problems, flags.problems, file.problems); len(problems) > 0 {
		return Config{}, &Error{Problems: problems}
	}
	maps.Copy(file.values, env.values)
	maps.Copy(file.values, flags.values)
	for _, s := range settings() {
		if v, ok := file.values[s.key]; ok {
			s.set(&c, v.value)
			c.origins[s.key] = v.origin
		}
	}
	if c.OIDC.Issuer != "" && c.OIDC.Audience == "" {
		return Config{}, &Error{Problems: []string{"oidc.issuer needs oidc.audience: tokens of the issuer for other servers must not be accepted."}}
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
