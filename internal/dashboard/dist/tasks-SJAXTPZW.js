import{a,b,c}from"./chunk-QQ2NNYPD.js";import"./chunk-M4NMJUHE.js";import"./chunk-6N2JVGTY.js";export{a as TaskState,c as Tasks,b as what};
