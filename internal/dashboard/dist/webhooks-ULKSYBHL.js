import{a,b,c,d,e,f}from"./chunk-RINTXSM6.js";import"./chunk-RBA4C664.js";import"./chunk-XXE5IC2O.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
