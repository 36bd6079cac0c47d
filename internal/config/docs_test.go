package config

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table in docs/configuration.md")

// TestSettings compares the settings with their checks and with docs/configuration.md.
func TestSettings(t *testing.T) {
	t.Parallel()

	t.Run("every default passes its own check", func(t *testing.T) {
		t.Parallel()
		for _, s := range settings() {
			if s.check != nil {
				require.Empty(t, s.check(s.def), s.key)
			}
		}
	})

	t.Run("a configuration without sources has the defaults", func(t *testing.T) {
		t.Parallel()
		c := Default()
		for _, s := range settings() {
			require.Equal(t, s.def, s.get(c), s.key)
		}
	})

	t.Run("no two settings share a variable or a flag", func(t *testing.T) {
		t.Parallel()
		seen := map[string]string{}
		for _, s := range settings() {
			for _, name := range []string{s.env(), s.env() + envFile, s.flag} {
				require.Empty(t, seen[name], "%s and %s", s.key, seen[name])
				if name != "" {
					seen[name] = s.key
				}
			}
		}
	})

	t.Run("the documentation has the same table", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile("../../docs/configuration.md")
		require.NoError(t, err)
		var documented []string
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "| `") {
				documented = append(documented, strings.TrimSpace(line))
			}
		}
		var want []string
		for _, s := range settings() {
			want = append(want, row(s))
		}
		if *update {
			text := strings.Replace(string(data), strings.Join(documented, "\n"), strings.Join(want, "\n"), 1)
			require.NoError(t, os.WriteFile("../../docs/configuration.md", []byte(text), 0o644)) //nolint:gosec // documentation
			return
		}
		require.Equal(t, strings.Join(want, "\n"), strings.Join(documented, "\n"), "run go test ./internal/config -update")
	})

	t.Run("the documentation names the variables that are no settings", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile("../../docs/configuration.md")
		require.NoError(t, err)
		for _, name := range append(clientVariables(), envConfig, "--config") {
			require.Contains(t, string(data), "`"+name+"`")
		}
	})
}

// row returns the setting's row in docs/configuration.md.
func row(s setting) string {
	flag, def := "", "none"
	if s.flag != "" {
		flag = "`--" + s.flag + "`"
	}
	if text := s.show(s.def); text != "" {
		def = "`" + text + "`"
	}
	kind := strings.TrimPrefix(s.typeName(), "a ")
	if i := strings.Index(kind, " such as"); i > 0 {
		kind = kind[:i]
	}
	columns := []string{"`" + s.key + "`", "`" + s.env() + "`", flag, def, kind, strings.NewReplacer("“", "`", "”", "`").Replace(s.help) + "."}
	return "| " + strings.Join(columns, " | ") + " |"
}
