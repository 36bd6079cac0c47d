package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Effective returns the configuration as a YAML document that Load would read back, each value
// with its source as a comment and secrets masked.
func (c Config) Effective() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	if c.file != "" {
		root.HeadComment = "read from " + c.file
	}
	for _, s := range settings() {
		parts := strings.Split(s.key, ".")
		section := root
		for _, name := range parts[:len(parts)-1] {
			section = child(section, name)
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.show(s.get(c))}
		switch s.def.(type) {
		case bool:
			value.Tag = "!!bool"
		case int, int64:
			value.Tag = "!!int"
		}
		if origin := c.origins[s.key]; origin != "" {
			value.LineComment = origin
		}
		section.Content = append(section.Content, word(parts[len(parts)-1]), value)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	return out.Bytes(), nil
}

func word(name string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: name} }

// child returns the section with the name and creates it if missing.
func child(section *yaml.Node, name string) *yaml.Node {
	for i := 0; i < len(section.Content); i += 2 {
		if section.Content[i].Value == name {
			return section.Content[i+1]
		}
	}
	made := &yaml.Node{Kind: yaml.MappingNode}
	section.Content = append(section.Content, word(name), made)
	return made
}

// LogValue implements slog.LogValuer with the secrets masked.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String returns the effective configuration with the secrets masked.
func (c Config) String() string {
	text, err := c.Effective()
	if err != nil {
		return "config: " + err.Error()
	}
	return string(text)
}

// GoString masks secrets in %#v.
func (c Config) GoString() string { return c.String() }
