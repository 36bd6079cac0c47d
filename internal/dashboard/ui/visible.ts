// Text from agents and tools can contain invisible characters and characters that reorder text. They are shown as escapes.
import { Fragment, options } from "preact";

const escape = (c: string) => "\\u{" + c.codePointAt(0)!.toString(16) + "}";

/** visible replaces invisible characters and characters that reorder text with escapes. */
export const visible = (text: string) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (c) => (c === "\n" || c === "\t" ? c : escape(c)));

/** shown is like visible, for text that is not compared: it keeps line ends and the joiners of emoji and Arabic letters. */
export const shown = (text: string) => text.replace(/(?![\n\t\r]|(?<=\p{Extended_Pictographic})\ufe0f|(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}]\ufe0f?)\u200d(?=\p{Extended_Pictographic})|(?<=\p{Script=Arabic})\u200c(?=\p{Script=Arabic}))[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, escape);

const texts = (children: any): any => (typeof children === "string" ? shown(children) : Array.isArray(children) ? children.map(texts) : children);

// All text of the page passes through this hook, including attributes that a reader sees, but not the values of fields.
const next = options.vnode;
options.vnode = (node) => {
  const props = node.props as Record<string, any>;
  if (typeof node.type === "string") {
    for (const name of ["title", "aria-label", "aria-description", "aria-valuetext", "placeholder"]) if (typeof props[name] === "string") props[name] = shown(props[name]);
  }
  if ((typeof node.type === "string" || node.type === Fragment) && props.children !== undefined) props.children = texts(props.children);
  next?.(node);
};
