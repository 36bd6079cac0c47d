package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTable proves that the struct, the defaults and docs/configuration.md say
// the same as the table of settings.
func TestTable(t *testing.T) {
	t.Parallel()

	t.Run("every field of the struct is a setting of the same type and the other way round", func(t *testing.T) {
		t.Parallel()
		fields := map[string]string{}
		collect(reflect.TypeFor[Config](), "", fields)
		table := map[string]string{}
		for _, s := range settings() {
			table[s.key] = reflect.TypeOf(s.def).String()
		}
		require.Equal(t, table, fields)
	})

	t.Run("every default passes its own check", func(t *testing.T) {
		t.Parallel()
		for _, s := range settings() {
			if s.check != nil {
				require.Empty(t, s.check(s.def), s.key)
			}
		}
	})

	t.Run("the struct of nothing said holds the defaults", func(t *testing.T) {
		t.Parallel()
		c := Default()
		for _, s := range settings() {
			require.Equal(t, s.def, c.value(s.key), s.key)
		}
	})

	t.Run("no two settings share a variable or a flag", func(t *testing.T) {
		t.Parallel()
		seen := map[string]string{}
		for _, s := range settings() {
			for _, name := range []string{s.env(), s.flag} {
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
		require.Equal(t, strings.Join(want, "\n"), strings.Join(documented, "\n"))
	})

	t.Run("the documentation names the variables that are not settings", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile("../../docs/configuration.md")
		require.NoError(t, err)
		for _, name := range append(clientVariables(), envConfig, "--config") {
			require.Contains(t, string(data), "`"+name+"`")
		}
	})
}

func collect(typ reflect.Type, prefix string, into map[string]string) {
	for field := range typ.Fields() {
		tag := field.Tag.Get("koanf")
		switch {
		case tag == "":
		case field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[time.Time]():
			collect(field.Type, prefix+tag+".", into)
		default:
			into[prefix+tag] = field.Type.String()
		}
	}
}

// row is the setting's line in docs/configuration.md.
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
	columns := []string{"`" + s.key + "`", "`" + s.env() + "`", flag, def, kind, s.help + "."}
	return "| " + strings.Join(columns, " | ") + " |"
}
