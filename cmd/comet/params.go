package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/input"
	"comet/openapi/client"
)

// param is an argument or a flag of a command in the table.
type param struct {
	name string // "--search -q" is a flag with a shorthand, "TOKENS" an argument
	// to is the name of the parameter, the header or the body member. "?name" is a parameter of a
	// request with a body, "a.b" is member b of a, "*" is the whole body, and "" is not sent.
	to   string
	kind kind
	help string
}

// kind is what a parameter holds.
type kind struct {
	placeholder string        // in the help: --limit number
	ids         string        // path of a list with the values
	choices     []string      // the values that there are, nil for any
	list        bool          // the flag may be repeated
	array       bool          // the flag may be repeated, and commas do not separate
	joined      bool          // a list is sent as one text
	separator   string        // of name and value in an array of pairs
	member      string        // of the objects that the values of an array become
	boolean     bool          // the flag needs no value
	unit        time.Duration // of the number that the API has for it
	byDefault   string        // of a flag that is not sent
	// parse returns the value. Its errors are clauses, such as `"x" is not a number`.
	parse func(s *session, text string) (any, error)
}

// The kinds of parameters.
var (
	text         = kind{placeholder: "text", parse: func(_ *session, text string) (any, error) { return text, nil }}
	number       = kind{placeholder: "number", parse: func(_ *session, text string) (any, error) { return parseNumber(text) }}
	yesOrNo      = kind{boolean: true, parse: func(_ *session, text string) (any, error) { return parseBool(text) }}
	notSet       = kind{boolean: true, parse: parseNot}
	textList     = kind{placeholder: "list", list: true}
	commaList    = kind{placeholder: "list", list: true, joined: true}
	words        = kind{list: true} // an argument: all the words that are left
	duration     = kind{placeholder: "duration", parse: func(_ *session, text string) (any, error) { return parseDuration(text) }}
	seconds      = kind{placeholder: "duration", unit: time.Second, parse: func(_ *session, text string) (any, error) { return parseUnits(text, time.Second) }}
	millis       = kind{placeholder: "duration", unit: time.Millisecond, parse: func(_ *session, text string) (any, error) { return parseUnits(text, time.Millisecond) }}
	goDuration   = kind{placeholder: "duration", parse: parseGoDuration}
	timestamp    = kind{placeholder: "time", parse: func(_ *session, text string) (any, error) { return parseTime(text) }}
	timeOrAgo    = kind{placeholder: "time", parse: func(_ *session, text string) (any, error) { return parseTimeOrAgo(text) }}
	fromNow      = kind{placeholder: "duration", parse: func(_ *session, text string) (any, error) { return parseFromNow(text) }}
	textOrNil    = kind{placeholder: "text", parse: func(_ *session, text string) (any, error) { return nilIf("", text), nil }}
	uuidText     = kind{placeholder: "UUID", parse: parseUUID}
	jsonValue    = kind{placeholder: "object", parse: parseJSON}
	secretIn     = kind{placeholder: "secret", parse: parseSecret}
	keyFile      = kind{placeholder: "file", parse: parseKeyFile}
	patterns     = kind{array: true, member: "pattern"}
	document     = kind{placeholder: "file", parse: func(s *session, text string) (any, error) { return s.readInput(text) }}
	textFile     = kind{placeholder: "file", parse: parseTextFile}
	objectFile   = kind{placeholder: "file", parse: func(s *session, text string) (any, error) { return s.parameters(text, nil) }}
	format       = oneOf(formatTable, formatJSON, formatYAML)
	rosterFormat = oneOf(formatYAML, formatJSON)
	toolClass    = kind{choices: toolClasses(), parse: parseToolClass}
)

// array is a flag whose values may have commas. With a separator they are pairs, which are
// sent as an object.
func array(separator string) kind { return kind{array: true, separator: separator} }

// named returns the kind with another placeholder.
func (k kind) named(placeholder string) kind {
	k.placeholder = placeholder
	return k
}

// of returns the kind with the values that there are.
func (k kind) of(choices ...string) kind {
	k.choices = choices
	return k
}

// from returns the kind with the path of a list of its values.
func (k kind) from(path string) kind {
	k.ids = path
	return k
}

// or returns the kind with a default, for a flag that is not sent.
func (k kind) or(byDefault string) kind {
	k.byDefault = byDefault
	return k
}

// oneOf is a text that must be one of these, which the server checks.
func oneOf(choices ...string) kind {
	return kind{placeholder: "text", choices: choices, parse: text.parse}
}

// fileFlag is --file with the whole request.
var fileFlag = param{"--file -f", "*", document, "JSON `file` with the request, - for standard input; instead of the other flags"}

// flag is the name of a flag without dashes, "" for an argument.
func (p param) flag() string {
	name, isFlag := strings.CutPrefix(p.display(), "--")
	if !isFlag {
		return ""
	}
	return name
}

// argument is the name of an argument, "" for a flag.
func (p param) argument() string {
	if p.flag() != "" {
		return ""
	}
	return p.name
}

// display is the name that messages have for the parameter.
func (p param) display() string {
	name, _, _ := strings.Cut(p.name, " ")
	return name
}

// register adds the flag to a command.
func (p param) register(cmd *cobra.Command) {
	name := p.flag()
	if name == "" {
		return
	}
	_, shorthand, _ := strings.Cut(p.name, " -")
	fs, help := cmd.Flags(), p.help
	switch {
	case p.kind.array:
		fs.StringArrayP(name, shorthand, nil, help)
	case p.kind.list:
		fs.StringSliceP(name, shorthand, nil, help)
	default:
		f := fs.VarPF(&textFlag{text: p.kind.byDefault, kind: p.kind}, name, shorthand, help)
		if p.kind.boolean {
			f.NoOptDefVal = "true"
		}
	}
	placeholder, _ := pflag.UnquoteUsage(fs.Lookup(name))
	if slices.Contains([]string{"file", "directory", "path", "object"}, placeholder) {
		return // the shell completes file names
	}
	if err := cmd.RegisterFlagCompletionFunc(name, p.completeFlag); err != nil {
		panic(err) // the flag is registered above
	}
}

// completeArgument completes an argument by its choices or by the ids that there are.
func (row command) completeArgument(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	name := append(argumentNames(row.use), make([]string, len(args)+1)...)[len(args)]
	for _, p := range row.params {
		if p.argument() == name && p.kind.choices != nil {
			return p.kind.choices, cobra.ShellCompDirectiveNoFileComp
		}
	}
	if path := listOf(row.ids, args); path == "" && (name == "FILE" || strings.Contains(row.use, "COMMAND")) {
		return nil, cobra.ShellCompDirectiveDefault
	} else if s, err := newSession(cmd); err == nil {
		return s.names(cmd.Context(), path), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag completes the value of a flag, or the last value of a list.
func (p param) completeFlag(cmd *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
	values := slices.Clone(p.kind.choices)
	if s, err := newSession(cmd); err == nil && values == nil {
		values = s.names(cmd.Context(), p.kind.ids)
	}
	if p.kind.list {
		for i := range values {
			values[i] = given[:strings.LastIndexByte(given, ',')+1] + values[i]
		}
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

// textFlag is a flag whose value is parsed when the command runs.
type textFlag struct {
	text string
	kind kind
}

var _ pflag.Value = (*textFlag)(nil)

// String implements pflag.Value.
func (f *textFlag) String() string { return f.text }

// Set implements pflag.Value.
func (f *textFlag) Set(text string) error {
	f.text = text
	return nil
}

// Type implements pflag.Value; the help shows it.
func (f *textFlag) Type() string {
	if f.kind.boolean {
		return "bool"
	}
	return f.kind.placeholder
}

// valueOf returns the value of a parameter, and whether it was given.
func (c *call) valueOf(p param) (v any, ok bool, err error) {
	if name := p.argument(); name != "" {
		i := slices.Index(argumentNames(c.use), name)
		if i < 0 || i >= len(c.args) {
			return nil, false, nil
		}
		if p.kind.list { // the last argument, which may be repeated
			return strings.Join(c.args[i:], " "), true, nil
		}
		v, err = p.kind.parse(c.session, c.args[i])
		return v, true, err
	}
	switch f := c.cmd.Flags().Lookup(p.flag()); {
	case !f.Changed && p.kind.byDefault == "":
		return nil, false, nil
	case p.kind.list || p.kind.array:
		values := f.Value.(pflag.SliceValue).GetSlice() //nolint:forcetypeassert // register made it one
		switch {
		case p.kind.joined:
			return strings.Join(values, ","), true, nil
		case p.kind.member != "":
			objects := make([]map[string]string, len(values))
			for i, value := range values {
				objects[i] = map[string]string{p.kind.member: value}
			}
			return objects, true, nil
		case p.kind.separator == "":
			return values, true, nil
		}
		v, err = parsePairs(values, p.kind.separator)
		return v, true, err
	default:
		v, err = p.kind.parse(c.session, f.Value.String())
		return v, true, err
	}
}

// changed reports whether a flag was given.
func (c *call) changed(flag string) bool { return c.cmd.Flags().Changed(flag) }

// checkRequired requires one alternative of each entry of the row's required flags.
func (c *call) checkRequired() error {
	for _, names := range c.required {
		given := slices.DeleteFunc(strings.Split(names, "|"), func(flags string) bool {
			return !slices.ContainsFunc(strings.Split(flags, ","), func(name string) bool { return c.changed(name[2:]) })
		})
		switch words := strings.NewReplacer("|", " or ", ",", ", "); {
		case len(given) == 0:
			return usagef("missing %s", words.Replace(names))
		case len(given) > 1:
			return usagef("give %s, not both", words.Replace(strings.Join(given, "|")))
		}
	}
	return nil
}

// rename replaces the name that the API has for the parameter, if it cannot be an English word:
// at the beginning of the text, or with an underscore.
func (p param) rename(detail string) string {
	dot := strings.LastIndexByte(p.to, '.') + 1
	above, name := regexp.QuoteMeta(p.to[:dot]), strings.TrimPrefix(p.to[dot:], "?")
	if p.kind.unit > 0 {
		above = "the |" + above // errors about code limits begin with an article
	}
	pattern := `^(` + above + `)?` + name + `\b(\[\d+\])?`
	if strings.Contains(name, "_") {
		pattern = `\b(` + above + `)?` + name + `\b(\[\d+\])?`
	}
	at := regexp.MustCompile(pattern)
	if p.kind.unit > 0 && at.MatchString(detail) {
		detail = regexp.MustCompile(`\b\d+\b( ms\b)?`).ReplaceAllStringFunc(detail, func(number string) string {
			n, _ := strconv.ParseInt(strings.TrimSuffix(number, " ms"), 10, 32) // 0 if it is too long
			return input.Duration(time.Duration(n) * p.kind.unit)
		})
	}
	return at.ReplaceAllLiteralString(detail, p.display())
}

// renameField replaces the place of an invalid value by the name of the parameter.
func (p param) renameField(f *client.FieldError) {
	f.Detail = p.rename(f.Detail)
	pointer := "/" + strings.ReplaceAll(p.to, ".", "/")
	if f.Parameter != nil && *f.Parameter == p.to || f.Pointer != nil && (*f.Pointer == pointer || strings.HasPrefix(*f.Pointer, pointer+"/")) {
		f.Pointer, f.Parameter = nil, new(p.display())
	}
}
