import{a,b,c,d,e,f}from"./chunk-S4IPMPZS.js";import"./chunk-ATZ2TSOO.js";import"./chunk-GA2PO76C.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
