// Writes a strict JSON schema for each kind in an OpenAPI 2 description of Kubernetes:
//
//   node schemas.mjs swagger.json FOLDER
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [source, folder] = process.argv.slice(2);
const { definitions } = JSON.parse(readFileSync(source, "utf8"));

// strict returns a copy of a schema that rejects unknown properties.
function strict(schema) {
  if (Array.isArray(schema)) return schema.map(strict);
  if (schema === null || typeof schema !== "object") return schema;
  if (schema.format === "int-or-string") return { oneOf: [{ type: "string" }, { type: "integer" }] };
  const copy = Object.fromEntries(
    Object.entries(schema)
      .filter(([key]) => key !== "format" && key !== "description" && !key.startsWith("x-"))
      .map(([key, value]) => [key, key === "properties" ? mapped(value) : strict(value)]),
  );
  if (copy.properties && !("additionalProperties" in copy)) copy.additionalProperties = false;
  return copy;
}

function mapped(properties) {
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, strict(schema)]));
}

// referenced adds the definitions that a schema needs.
function referenced(schema, found) {
  for (const [, name] of JSON.stringify(schema).matchAll(/"\$ref":"#\/definitions\/([^"]+)"/g)) {
    if (found[name]) continue;
    found[name] = strict(definitions[name]);
    // A quantity is text or a number.
    if (name.endsWith(".api.resource.Quantity")) found[name] = { oneOf: [{ type: "string" }, { type: "number" }] };
    referenced(found[name], found);
  }
  return found;
}

let written = 0;
for (const definition of Object.values(definitions)) {
  for (const { group, version, kind } of definition["x-kubernetes-group-version-kind"] ?? []) {
    const schema = strict(definition);
    if (!schema.properties?.kind) continue;
    schema.properties.apiVersion = { const: group ? `${group}/${version}` : version };
    schema.properties.kind = { const: kind };
    schema.required = [...new Set([...(schema.required ?? []), "apiVersion", "kind"])];
    schema.definitions = referenced(schema, {});
    const name = [kind, group.split(".")[0], version].filter(Boolean).join("-").toLowerCase();
    writeFileSync(join(folder, `${name}.json`), JSON.stringify(schema));
    written++;
  }
}
if (written === 0) throw new Error(`${source} describes no kind`);
