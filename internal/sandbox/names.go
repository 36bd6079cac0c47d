package sandbox

import (
	"slices"
	"strings"
)

// server is how code finds the tools of one server.
type server struct {
	ID    string            `json:"id"`
	Names []string          `json:"names"` // its id first, then the spellings that are identifiers
	Tools map[string]string `json:"tools"` // how it is spelled in code → the tool's name
}

// serversOf gives every server and tool its names: the exact one, and those in camelCase and
// snake_case unless another has them. Exact names come before spellings, and tools in the
// order they were given.
func serversOf(tools []Tool) []server {
	all := []server{}
	at := map[string]int{}
	taken := map[string]bool{}
	for _, t := range tools {
		i, known := at[t.Server]
		if !known {
			i = len(all)
			at[t.Server] = i
			taken[t.Server] = true
			all = append(all, server{ID: t.Server, Names: []string{t.Server}, Tools: map[string]string{}})
		}
		all[i].Tools[t.Name] = t.Name
	}
	for i := range all {
		for _, name := range spellings(all[i].ID) {
			if !taken[name] {
				taken[name] = true
				all[i].Names = append(all[i].Names, name)
			}
		}
	}
	for _, t := range tools {
		names := all[at[t.Server]].Tools
		for _, name := range spellings(t.Name) {
			if _, other := names[name]; !other {
				names[name] = t.Name
			}
		}
	}
	return all
}

// spellings are a name in camelCase and in snake_case, as far as these are identifiers:
// "list-commits" is listCommits and list_commits.
func spellings(name string) []string {
	parts := parts(name)
	if len(parts) == 0 {
		return nil
	}
	camel := strings.ToLower(parts[0])
	for _, p := range parts[1:] {
		camel += strings.ToUpper(p[:1]) + strings.ToLower(p[1:])
	}
	snake := strings.ToLower(strings.Join(parts, "_"))
	all := []string{camel, snake}
	all = slices.DeleteFunc(all, func(s string) bool { return !isIdentifier(s) })
	slices.Sort(all)
	return slices.Compact(all)
}

func separated(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool {
		return r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// parts are the words of a name, told apart by separators and by capitals.
func parts(name string) []string {
	var all []string
	for _, word := range separated(name) {
		begin := 0
		for i := 1; i < len(word); i++ {
			if isUpper(word[i]) && (!isUpper(word[i-1]) || i+1 < len(word) && isLower(word[i+1])) {
				all = append(all, word[begin:i])
				begin = i
			}
		}
		all = append(all, word[begin:])
	}
	return all
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }

func isLower(b byte) bool { return b >= 'a' && b <= 'z' }

// isIdentifier reports whether a spelling can be named without quotes, which are letters,
// digits, _ and $.
func isIdentifier(s string) bool { return s != "" && (s[0] < '0' || s[0] > '9') }
