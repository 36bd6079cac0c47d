package config

import (
	"bytes"
	"fmt"
	"reflect"
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
		value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.show(c.value(s.key))}
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

// value returns the field whose koanf tags spell the key.
func (c Config) value(key string) any {
	v := reflect.ValueOf(c)
	for part := range strings.SplitSeq(key, ".") {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("koanf") == part {
				v = v.Field(i)
				break
			}
		}
	}
	return v.Interface()
}
