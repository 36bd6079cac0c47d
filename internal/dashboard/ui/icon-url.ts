/** iconURL returns the address of comet's icon, which the document names. */
export default () => document.querySelector<HTMLLinkElement>('link[rel="icon"]')?.href ?? "";
