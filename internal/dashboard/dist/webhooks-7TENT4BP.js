import{a,b,c,d,e,f}from"./chunk-7ATH7KAQ.js";import"./chunk-M4NMJUHE.js";import"./chunk-6N2JVGTY.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
