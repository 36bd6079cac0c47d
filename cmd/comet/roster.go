package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"comet/openapi/client"
)

// importRoster sends a roster and prints what the import did, or would do.
func importRoster(ctx context.Context, c *call) error {
	data, err := c.readInput(c.args[0])
	if err != nil {
		return err
	}
	c.file = nameOf(c.args[0])
	c.sent["*"] = data
	if c.sent["Content-Type"], err = rosterType(given[string](c, "format"), c.args[0], data); err != nil {
		return err
	}
	body, err := c.send(ctx)
	if err != nil {
		return err
	}
	var report struct {
		Valid      bool                `json:"valid"`
		Violations []client.FieldError `json:"violations"`
	}
	if err := decode(body, &report); err != nil {
		return err
	}
	if report.Valid {
		return c.printResponse(body)
	}
	title := fmt.Sprintf("%s has %s", c.file, count(len(report.Violations), "mistake", "mistakes"))
	if err := c.out.show(body, func() error { return nil }); err != nil {
		return err
	}
	return &apiError{status: http.StatusUnprocessableEntity, problem: client.Problem{Title: title, Errors: &report.Violations}, file: c.file}
}

// rosterType returns the media type of a roster, given by --format, the file name or the first
// character.
func rosterType(format, path string, data []byte) (string, error) {
	if format == "" {
		format = formatYAML
		extension := strings.ToLower(filepath.Ext(path))
		named := extension == ".json" || extension == ".yaml" || extension == ".yml"
		if extension == ".json" || !named && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
			format = formatJSON
		}
	}
	if format != formatJSON && format != formatYAML {
		return "", usagef("--format must be yaml or json, not %q", format)
	}
	return "application/" + format, nil
}

// exportRoster prints a roster unchanged.
func exportRoster(ctx context.Context, c *call) error {
	if !c.changed("format") {
		c.sent["format"] = formatYAML
		if c.out.format == formatJSON {
			c.sent["format"] = formatJSON
		}
	}
	body, err := c.send(ctx)
	if err != nil {
		return err
	}
	_, err = c.out.w.Write(body)
	return err
}

func nameOf(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}
